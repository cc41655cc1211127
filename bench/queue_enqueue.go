package bench

import "context"

// Enqueue measures how many jobs a second one client enqueues, 5,000 in a call, while no worker
// runs.
func (s JobsScenario) Enqueue() Scenario {
	return s.scenario(func(env *Env, jobs Jobs) Workload { return &enqueuing{env, jobs} })
}

type enqueuing struct {
	env  *Env
	jobs Jobs
}

func (e *enqueuing) Close() error { return e.jobs.Close() }

func (e *enqueuing) Round(ctx context.Context, _ int) (Round, error) {
	if err := e.jobs.Clean(ctx); err != nil {
		return Round{}, err
	}
	if err := checkpoint(ctx, e.env); err != nil {
		return Round{}, err
	}
	first, batch := 0, e.env.callOf()
	return Round{
		Client: func(int) (Op, error) { // there is one
			return func(ctx context.Context) (int, error) {
				if err := e.jobs.Enqueue(ctx, first, batch); err != nil {
					return 0, err
				}
				first += batch
				return batch, nil
			}, nil
		},
		Check: matches("jobs", "the table knows of", 0, e.jobs.Left),
	}, nil
}
