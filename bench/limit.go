package bench

import "context"

// limits are what a result is held against: what the disk, the protocol and the server give when
// nothing else is asked of them.
func limits() []Scenario {
	return []Scenario{
		{
			Name: "limit/fdatasync", MaxClients: 1, Open: openFlush,
			About: "flushes of 8 kB a second on this machine's disk, where a server started here has its data",
		},
		{
			Name: "limit/select1", Open: openSelect1,
			About: "SELECT 1 through the pool of pgx or database/sql",
		},
	}
}

// calls is a Workload whose rounds are all alike, and where every client does the same.
type calls struct {
	op    Op
	close func() error
}

func (c calls) Close() error { return c.close() }

func (c calls) Round(context.Context, int) (Round, error) {
	return Round{Client: func(int) (Op, error) { return c.op, nil }}, nil
}

func openSelect1(ctx context.Context, env *Env) (Workload, error) {
	db, err := env.Database(ctx)
	if err != nil {
		return nil, err
	}
	return calls{func(ctx context.Context) (units int, err error) {
		err = db.Query(ctx, "SELECT 1").Scan(&units)
		return units, err
	}, db.Close}, nil
}
