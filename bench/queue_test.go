package bench

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestQueuesRun runs every scenario twice with a few hundred jobs, and asks the server what is
// left.
func TestQueuesRun(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		for _, s := range queues() {
			t.Run(string(kind)+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				env := &Env{Kind: kind, Server: testdb.Server(t, kind), DSN: testdb.DSN(t, kind), Clients: 1, Conns: s.Conns[0], Jobs: 300, Rate: 200}
				if err := migrateLimits(t.Context(), env); err != nil {
					t.Fatal(err)
				}
				w, err := s.Open(t.Context(), env)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := w.Close(); err != nil {
						t.Error(err)
					}
				}()
				for n := range 2 {
					runOnce(t, w, n)
				}
			})
		}
	}
}

// runOnce runs a round, which has to do something.
func runOnce(t *testing.T, w Workload, n int) {
	t.Helper()
	round, err := w.Round(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	sample, err := round.run(t.Context(), load{clients: 1, time: 200 * time.Millisecond, watch: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if sample.OK == 0 || sample.Elapsed <= 0 || sample.Latency.Max <= 0 || sample.totalFailed() > 0 {
		t.Errorf("%+v", sample)
	}
	if err := round.Check(t.Context(), sample.OK); err != nil {
		t.Error(err)
	}
}

// jobsFake keeps jobs in memory, and spoils some.
type jobsFake struct {
	mu    sync.Mutex
	there []int
	lost  int64 // jobs that no worker runs
	spoil func(j *jobsFake, job int, progress Progress)
}

func (j *jobsFake) Clean(context.Context) error { return nil }
func (j *jobsFake) Close() error                { return nil }

func (j *jobsFake) Enqueue(_ context.Context, first, n int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range n {
		j.there = append(j.there, first+i)
	}
	return nil
}

func (j *jobsFake) Left(context.Context) (int64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return int64(len(j.there)) + j.lost, nil
}

func (j *jobsFake) Work(ctx context.Context, progress Progress) error {
	look := time.NewTicker(100 * time.Microsecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		j.mu.Lock()
		all := j.there
		j.there = nil
		j.mu.Unlock()
		for _, job := range all {
			progress.Begun(job)
			if j.spoil != nil {
				j.spoil(j, job, progress)
			}
			progress.Ended(1)
		}
	}
}

// TestAQueueThatMiscounts is found out, and one that does not is not.
func TestAQueueThatMiscounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of   func(JobsScenario) Scenario
		jobs *jobsFake
		says string
	}{
		"burn":     {JobsScenario.Burn, &jobsFake{}, ""},
		"pickup":   {JobsScenario.Pickup, &jobsFake{}, ""},
		"enqueued": {JobsScenario.Enqueue, &jobsFake{}, ""},
		"ends counted twice": {JobsScenario.Burn, &jobsFake{spoil: func(_ *jobsFake, job int, progress Progress) {
			progress.Ended(job % 2)
		}}, errTooMany.Error()},
		"ends that are none":       {JobsScenario.Burn, &jobsFake{lost: 1}, "are left"},
		"picked up, and not ended": {JobsScenario.Pickup, &jobsFake{lost: 1}, "are left"},
		"begun twice": {JobsScenario.Pickup, &jobsFake{spoil: func(_ *jobsFake, job int, progress Progress) {
			progress.Begun(job)
		}}, errTwice.Error()},
		"enqueued twice": {JobsScenario.Enqueue, &jobsFake{lost: 100}, "the table knows of"},
	} {
		err := tryOnce(t, c.of(JobsScenario{Conns: 1, Open: func(context.Context, *Env) (Jobs, error) { return c.jobs, nil }}))
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// tryOnce runs a round where no server is asked for anything.
func tryOnce(t *testing.T, s Scenario) error {
	t.Helper()
	w, err := s.Open(t.Context(), &Env{Kind: devdb.MariaDB, Jobs: 100, Rate: 1000})
	if err != nil {
		t.Fatal(err)
	}
	round, err := w.Round(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	sample, err := round.run(t.Context(), load{clients: 1, time: 50 * time.Millisecond, watch: quiet})
	if err != nil {
		return err
	}
	return round.Check(t.Context(), sample.OK)
}

// TestWorkersThatEndTooSoon end the run, and don't have it wait.
func TestWorkersThatEndTooSoon(t *testing.T) {
	t.Parallel()
	broken := errors.New("it broke")
	b := &burn{env: &Env{Kind: devdb.MariaDB, Jobs: 10}, jobs: quitter{&jobsFake{}, broken}}
	if _, err := b.run(t.Context(), time.Second); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type quitter struct {
	*jobsFake
	err error
}

func (q quitter) Work(context.Context, Progress) error { return q.err }

// TestBacklogsSuitTheTime: as many as were done in so long, within bounds, unless they are counted
// beforehand.
func TestBacklogsSuitTheTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		b    burn
		want int
	}{
		{burn{env: &Env{}}, firstBacklog}, {burn{env: &Env{}, first: 7}, 7}, {burn{env: &Env{}, rate: 1000, first: 7}, 2000},
		{burn{env: &Env{}, rate: 1}, leastBacklog}, {burn{env: &Env{}, rate: 1e9}, mostBacklog}, {burn{env: &Env{Jobs: 3}, rate: 1000}, 3},
	} {
		if got := c.b.size(2 * time.Second); got != c.want {
			t.Errorf("%d, want %d", got, c.want)
		}
	}
}
