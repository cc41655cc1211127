package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/lease"
)

// watching is an engine that watches.
func (r rig) watching() lease.Watch {
	r.Helper()
	r.leaseDriver.watch = time.Millisecond
	w, err := r.Watch(r.ctx)
	r.ok(err)
	r.Cleanup(w.Close)
	return w
}

// kind is the server's.
func (r rig) kind() devdb.Kind {
	if r.leaseDriver.db.MariaDB {
		return devdb.MariaDB
	}
	return devdb.MySQL
}

// looking has the server look at keys, and returns what it saw.
func (r rig) looking(w lease.Watch, told []lease.LeaseState, keys ...string) <-chan []lease.LeaseState {
	r.Helper()
	seen := make(chan []lease.LeaseState, 1)
	go func() {
		var got []lease.LeaseState
		for r.ctx.Err() == nil && len(got) == 0 {
			var err error
			if got, err = w.Watch(r.ctx, keys, nil, told, time.Second); err != nil {
				r.Error(err)
				break
			}
		}
		seen <- got
	}()
	for r.ctx.Err() == nil {
		var looks int
		r.ok(r.db.QueryRowContext(r.ctx, `SELECT COUNT(*) FROM `+devdb.Processlist+`
			WHERE db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE '%hundreds.n AS n%'`).Scan(&looks))
		if looks > 0 {
			break
		}
	}
	return seen
}

// saw fails unless the lease was seen free under its token.
func (r rig) saw(seen <-chan []lease.LeaseState, want lease.ReleaseRequest) {
	r.Helper()
	if got := <-seen; len(got) != 1 || got[0] != (lease.LeaseState{Key: want.Key, Token: want.Token}) {
		r.Errorf("saw %+v, want %q under %d", got, want.Key, want.Token)
	}
}

// TestLookSeesEachRowAnew: whatever becomes of one key, or of one of many, while a statement looks
// at it.
func TestLookSeesEachRowAnew(t *testing.T) {
	each(t, settings, func(r rig) {
		us := r.join("us")
		w := r.watching()
		many := []string{"k"}
		for n := range 99 {
			other := r.take(us, ask(fmt.Sprint("other ", n)))
			many = append(many, other.Key)
		}
		for _, keys := range [][]string{{"k"}, many} {
			for range 3 {
				held := r.take(us, ask("k"))
				seen := r.looking(w, nil, keys...)
				r.exec("UPDATE dblock_lease SET handle = NULL, member_id = NULL WHERE lease_key = 'k'")
				r.saw(seen, held)
			}
			held := r.take(us, ask("k"))
			seen := r.looking(w, nil, keys...)
			r.exec("UPDATE dblock_lease SET held_until = UTC_TIMESTAMP(6) WHERE lease_key = 'k'")
			r.saw(seen, held)
			gone := r.join("gone")
			held = r.take(gone, ask("k"))
			seen = r.looking(w, nil, keys...)
			r.ok(r.Deregister(r.ctx, gone.Member))
			r.saw(seen, held)
			r.exec("UPDATE dblock_lease SET handle = NULL, member_id = NULL WHERE lease_key = 'k'")
		}
	})
}

// TestLookPassesOverWhatWasTold, and over free keys: a key that is free and unused does not end
// every look.
func TestLookPassesOverWhatWasTold(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		w := r.watching()
		a, b := r.take(us, ask("a")), r.take(us, ask("b"))
		r.release(a, b)
		told := []lease.LeaseState{{Key: "a", Token: a.Token}, {Key: "b", Token: b.Token}}
		for _, keys := range [][]string{{"a"}, {"a", "b", "nobody's"}} {
			began := time.Now()
			got, err := w.Watch(r.ctx, keys, nil, told, 100*time.Millisecond)
			if took := time.Since(began); err != nil || len(got) > 0 || took < 100*time.Millisecond {
				r.Errorf("saw %+v, %v, after %v", got, err, took)
			}
		}
		seen := r.looking(w, told, "a")
		again := r.take(us, ask("a"))
		r.release(again)
		r.saw(seen, again)
	})
}

// TestWhatIsNotCommittedIsNotFree: a look may see it, and no caller is to rely on that.
func TestWhatIsNotCommittedIsNotFree(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		w := r.watching()
		held := r.take(us, ask("k"))
		tx, err := r.db.BeginTx(r.ctx, nil)
		r.ok(err)
		seen := r.looking(w, nil, "k")
		_, err = tx.ExecContext(r.ctx, "UPDATE dblock_lease SET handle = NULL WHERE lease_key = 'k'")
		r.ok(err)
		r.saw(seen, held)
		if free, err := r.Free(r.ctx, []string{"k"}); err != nil || len(free) > 0 {
			r.Errorf("free: %+v, %v", free, err)
		}
		r.ok(tx.Commit())
		if free, err := r.Free(r.ctx, []string{"k", "other"}); err != nil || len(free) != 1 || free[0].Token != held.Token {
			r.Errorf("free: %+v, %v", free, err)
		}
	})
}

// TestAWatchIsNotPooled: no other call gets a connection with its settings, nor one whose statement
// was given up.
func TestAWatchIsNotPooled(t *testing.T) {
	each(t, plain, func(r rig) {
		r.join("us")
		w := r.watching()
		ctx, cancel := context.WithCancel(r.ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := w.Watch(ctx, []string{"k"}, nil, nil, time.Second)
			ended <- err
		}()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			r.Errorf("told %v", err)
		}
		w.Close()
		if s := r.db.Stats(); s.InUse > 1 { // the heartbeat's
			r.Errorf("%d connections are in use", s.InUse)
		}
		for range 5 {
			var level string
			r.ok(r.db.QueryRowContext(r.ctx, "SELECT @@"+variables(r.kind(), isolation)).Scan(&level))
			if level == "READ-UNCOMMITTED" {
				r.Error("a pooled connection reads what is not committed")
			}
		}
	})
}

// TestASmallPoolIsNotWatchedWith: it has no connection to spare.
func TestASmallPoolIsNotWatchedWith(t *testing.T) {
	each(t, plain, func(r rig) {
		r.leaseDriver.watch = time.Millisecond
		r.db.SetMaxOpenConns(sparing - 1)
		if _, err := r.Watch(r.ctx); !errors.Is(err, dblock.ErrUnsupported) {
			r.Errorf("got %v", err)
		}
	})
}

// TestLookOutlastsALimit: what ends others' statements early does not end these.
func TestLookOutlastsALimit(t *testing.T) {
	limits := map[string]string{"limited": halfASecond}
	each(t, limits, func(r rig) {
		w := r.watching()
		began := time.Now()
		if _, err := w.Watch(r.ctx, []string{"k"}, nil, nil, 800*time.Millisecond); err != nil {
			r.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestWatchHasLimits: what makes no sense is refused.
func TestWatchHasLimits(t *testing.T) {
	each(t, plain, func(r rig) {
		for _, d := range []time.Duration{time.Microsecond, time.Second + 1} {
			if _, err := NewLeaseLocker(r.ctx, r.db, LeaseOptions{Watch: d}); !errors.Is(err, dblock.ErrInvalid) {
				r.Errorf("%v: %v", d, err)
			}
		}
	})
}
