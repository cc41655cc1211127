package mysqllock

import (
	"database/sql"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestSessionBatches has batches of all sizes say the truth of each lock, prepared ones and those
// of a server that prepares nothing.
func TestSessionBatches(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind)+"/prepared", func(t *testing.T) {
			t.Parallel()
			if c := batchesOn(t, testdb.MySQLOn(t, kind)); c.plain || len(c.prepared) == 0 {
				t.Errorf("%d statements were prepared", len(c.prepared))
			}
		})
		t.Run(string(kind)+"/refused", func(t *testing.T) {
			t.Parallel()
			server := testdb.Own(t, kind, "--max-prepared-stmt-count=0")
			if server == nil {
				return
			}
			db, err := sql.Open("mysql", server.AdminDSN())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			if c := batchesOn(t, db); !c.plain || len(c.prepared) > 0 {
				t.Errorf("%d statements were prepared", len(c.prepared))
			}
		})
	}
}

func batchesOn(t *testing.T, db *sql.DB) *sessionConn {
	t.Helper()
	e := &sessionDriver{pool: db, idle: time.Minute}
	conns := make([]*sessionConn, 2)
	for i := range conns {
		c, err := e.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns[i] = c.(*sessionConn)
	}
	ours, theirs := conns[0], conns[1]
	for _, n := range []int{1, 2, 7, 8, 9, 15, 100, 128, 129, 300} {
		runs(t, theirs, batchOf(t, e, session.Take, n/2), true)
		takes := batchOf(t, e, session.Take, n)
		got := runs(t, ours, takes)
		if i := slices.Index(got, true); i != n/2 || slices.Contains(got[i:], false) {
			t.Errorf("of %d locks %d were free: took %v", n, n-n/2, got)
		}
		if has, err := ours.Has(t.Context(), takes); err != nil || !slices.Equal(has, got) {
			t.Errorf("it was told of %v, and has %v: %v", got, has, err)
		}
		// One statement of all kinds: what it has is released, others are looked at, and taken.
		frees := batchOf(t, e, session.Free, n)[n/2:]
		var looks []session.Step
		for _, s := range frees {
			looks = append(looks, session.Step{ID: s.ID, Op: session.HasWaiters})
		}
		fresh := batchOf(t, e, session.Take, 2*n)[n:]
		got = runs(t, ours, slices.Concat(frees, looks, fresh))
		if slices.Contains(got[:len(frees)], false) || slices.Contains(got[len(frees):2*len(frees)], true) || slices.Contains(got[2*len(frees):], false) {
			t.Errorf("%d locks given back, %d looked at and %d taken: %v", len(frees), len(looks), len(fresh), got)
		}
		runs(t, ours, batchOf(t, e, session.Free, 2*n)[n:], true)
		runs(t, theirs, batchOf(t, e, session.Free, n/2), true)
	}
	return ours
}

// batchOf is a step for each of n keys.
func batchOf(t *testing.T, e *sessionDriver, op session.Op, n int) []session.Step {
	t.Helper()
	steps := make([]session.Step, n)
	for i := range steps {
		id, err := e.ID("k" + strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		steps[i] = session.Step{ID: id, Op: op}
	}
	return steps
}

// runs does the steps, all of which are done, or none, where that is said.
func runs(t *testing.T, c *sessionConn, steps []session.Step, want ...bool) []bool {
	t.Helper()
	if len(steps) == 0 {
		return nil
	}
	done, err := c.Run(t.Context(), steps)
	if err != nil || len(want) > 0 && slices.Contains(done, !want[0]) {
		t.Fatalf("%d steps: %v, %v", len(steps), done, err)
	}
	return done
}
