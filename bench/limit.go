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
			Name: "limit/roundtrip", Open: openRoundtrip,
			About: "round trips of the protocol that ask for nothing: Sync on Postgres, COM_PING on MySQL",
		},
		{
			Name: "limit/select1", Open: openSelect1,
			About: "SELECT 1, prepared, through the pool of pgx or database/sql",
		},
		{
			Name: "limit/insert", MaxClients: 1, Open: openBulk,
			About: "order rows that one session can load, 1,000 to a commit: COPY on Postgres, INSERT on MySQL",
		},
	}
}

// calls is a Workload whose rounds are all alike, and where every caller does the same.
type calls struct {
	op    Op
	close func() error
}

func (c calls) Close() error { return c.close() }

func (c calls) Round(context.Context, int) (Round, error) {
	return Round{Client: func(int) (Op, error) { return c.op, nil }}, nil
}

// turns holds what many callers share. A pool's own bookkeeping would show in what is measured.
type turns[T any] chan T

func (t turns[T]) take(ctx context.Context) (one T, err error) {
	select {
	case one = <-t:
		return one, nil
	case <-ctx.Done():
		return one, context.Cause(ctx)
	}
}
