package programs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

const membersQuery = "SELECT count(*) FROM dblock_member"

// checkLeftovers looks for what a program has left in the tables when its processes have closed
// their Lockers.
func (p *place) checkLeftovers(t *testing.T, v *verdict, run string, members int64) {
	served := ""
	if p.kind != devdb.Postgres {
		served = " AND NOT served" // one that was served may stay for the sweeper
	}
	for what, c := range map[string]struct {
		query string
		most  int64
	}{
		"members": {membersQuery, max(members, 1)},
		"tickets": {"SELECT count(*) FROM dblock_ticket WHERE lease_key LIKE '" + run + "-%'" + served, 0},
		"readers": {"SELECT count(*) FROM dblock_reader", 0},
		"permits": {"SELECT count(*) FROM dblock_permit WHERE handle IS NOT NULL", 0},
	} {
		p.checkCount(t, v, what, c.query, c.most)
	}
}

// checkWaiters looks for waits of living processes whose callers have returned. What a process has
// waited for counts no more once it has left.
func (p *place) checkWaiters(t *testing.T, v *verdict) {
	p.checkCount(t, v, "waiters", "SELECT count(*) FROM dblock_lease_waiter w JOIN dblock_member m ON m.member_id = w.member_id", 0)
}

// checkCount waits until a query counts no more than that.
func (p *place) checkCount(t *testing.T, v *verdict, what, query string, most int64) {
	n := p.count(t, query)
	for until := time.Now().Add(freeWithin); n > most && time.Now().Before(until); n = p.count(t, query) {
		time.Sleep(5 * time.Millisecond)
	}
	if n > most {
		v.add("left", "%d %s are left, of %d", n, what, most)
	}
}

// isOfLeases reports whether dblock alone decides in which order a program locks rows.
func (p lockProgram) isOfLeases() bool {
	return !slices.ContainsFunc(p.Processes, func(process lockProcess) bool {
		return slices.ContainsFunc(process.Callers, func(c lockCaller) bool {
			return slices.ContainsFunc(c.Steps, func(s lockStep) bool { return s.space() == row || s.space() == session })
		})
	})
}

func (p *place) count(t *testing.T, query string) (n int64) {
	t.Helper()
	if err := p.db.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// deadlocks is how many the server has counted. Postgres counts by database, and adds those of a
// session when that has ended.
func (p *place) deadlocks(t *testing.T) int64 {
	t.Helper()
	switch server := testdb.Server(t, p.kind); {
	case p.kind == devdb.Postgres:
		return p.count(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
	case server == nil || server.PID() == 0:
		return 0 // it was given, and may count those of others
	}
	return p.count(t, "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'")
}

// TestControlDeadlocks makes a deadlock: it is counted.
func TestControlDeadlocks(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		p.exec(t, "INSERT INTO tally VALUES (1, 0), (2, 0)")
		before, ctx := p.deadlocks(t), context.Background()
		db := connect(t, p.kind, p.dsn)
		var all, first sync.WaitGroup
		first.Add(2)
		for i := range 2 {
			all.Go(func() {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					t.Error(err)
					first.Done()
					return
				}
				defer func() { _ = tx.Rollback() }()
				_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE tally SET n = 1 WHERE id = %d", 1+i))
				first.Done()
				first.Wait()
				if err == nil {
					_, _ = tx.ExecContext(ctx, fmt.Sprintf("UPDATE tally SET n = 1 WHERE id = %d", 2-i)) // one is refused
				}
			})
		}
		all.Wait()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(freeWithin); p.deadlocks(t) == before; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("the server counts no deadlock")
			}
		}
	})
}
