package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
)

// slow has each row that a statement writes to the tables of leases take that long.
func (r rig) slow(d time.Duration) {
	r.Helper()
	for _, table := range []string{"dblock_lease", "dblock_reader", "dblock_permit", "dblock_ticket"} {
		for _, event := range []string{"INSERT", "UPDATE"} {
			r.exec(fmt.Sprintf("CREATE TRIGGER slow_%s_%s BEFORE %s ON %s FOR EACH ROW DO SLEEP(%g)", table, event, event, table, d.Seconds()))
		}
	}
}

// TestNoAcquisitionLocksItsMember has each kind of acquisition take long at the server. The row of
// the member, which the heartbeat writes, is locked by none of them.
func TestNoAcquisitionLocksItsMember(t *testing.T) {
	each(t, races, func(r rig) {
		us := r.join("us")
		known := []lease.AcquireRequest{ask("a"), ask("b")}
		r.ok(r.Make(r.ctx, []string{"a", "b", "p", "q", "r", "s"}, 0))
		r.ok(r.permits.makeSemaphore(r.ctx, "permits", 2))
		set, data := []lease.AcquireRequest{ask("p"), ask("q")}, []lease.AcquireRequest{ask("r"), ask("s")}
		set[1].Handle = set[0].Handle
		data[0].Data = []byte("data")
		permits, shared, reader := ask("permits"), ask("shared"), ask("shared")
		permits.Permits, permits.Limit = 1, 2
		if got := r.enterShared(us, shared); got[0].Token == 0 {
			r.Fatalf("%+v", got)
		}
		r.slow(200 * time.Millisecond)
		kinds := map[string]struct {
			kind lease.Kind
			asks []lease.AcquireRequest
		}{
			"one": {lease.KindExclusive, known[:1]}, "alike": {lease.KindExclusive, []lease.AcquireRequest{known[1], ask("p0")}},
			"batch": {lease.KindExclusive, data}, "made": {lease.KindExclusive, []lease.AcquireRequest{ask("new")}},
			"set": {lease.KindSet, set}, "permits": {lease.KindPermits, []lease.AcquireRequest{permits}},
			"shared": {lease.KindShared, []lease.AcquireRequest{reader}}, "fair": {lease.KindFair, []lease.AcquireRequest{ask("fair")}},
		}
		for name, of := range kinds {
			var got []lease.AcquireResult
			began, done := time.Now(), make(chan error, 1)
			go func() {
				var err error
				got, err = r.Acquire(r.ctx, lease.AcquireBatch{Kind: of.kind, By: us, Requests: of.asks})
				done <- err
			}()
			looks, locked := 0, 0
			for under := true; under; {
				select {
				case err := <-done:
					r.ok(err)
					under = false
				case <-time.After(2 * time.Millisecond):
					looks++
					if !r.memberFree(us) {
						locked++
					}
				}
			}
			if locked > 0 || looks == 0 || time.Since(began) < 200*time.Millisecond {
				r.Errorf("%s: the member was locked at %d of %d looks in %v", name, locked, looks, time.Since(began))
			}
			for i, a := range got {
				if a.Err != nil || a.Token == 0 && a.Ticket == 0 {
					r.Errorf("%s: %d: %+v", name, i, a)
				}
			}
		}
	})
}

// memberFree reports whether no transaction has locked the row of a member.
func (r rig) memberFree(by lease.By) bool {
	r.Helper()
	var one int
	err := r.db.QueryRowContext(r.ctx, "SELECT 1 FROM dblock_member WHERE member_id = ? FOR UPDATE NOWAIT", by.Member[:]).Scan(&one)
	if err != nil && !mysql.IsLocked(err) {
		r.Fatal(err)
	}
	return err == nil
}

// TestAnAcquisitionEndsWithItsClient gives up acquisitions that take long at the server: what they
// have written is undone there, and the keys are free.
func TestAnAcquisitionEndsWithItsClient(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		alike := func(keys ...string) []lease.AcquireRequest {
			r.ok(r.Make(r.ctx, keys, 0))
			asks := make([]lease.AcquireRequest, len(keys))
			for i, key := range keys {
				asks[i] = ask(key)
				asks[i].Handle, asks[i].Data = asks[0].Handle, []byte("data")
			}
			return asks
		}
		set, batch := alike("a", "b", "c", "d", "e", "f", "g", "h"), alike("i", "j", "k", "l", "m", "n", "o", "p")
		r.ok(r.permits.makeSemaphore(r.ctx, "permits", 8))
		permits := ask("permits")
		permits.Permits, permits.Limit = 8, 8
		r.slow(100 * time.Millisecond)
		for name, b := range map[string]lease.AcquireBatch{
			"set":     {Kind: lease.KindSet, By: us, Requests: set},
			"batch":   {Kind: lease.KindExclusive, By: us, Requests: batch},
			"permits": {Kind: lease.KindPermits, By: us, Requests: []lease.AcquireRequest{permits}},
		} {
			ctx, cancel := context.WithTimeout(r.ctx, 400*time.Millisecond)
			got, err := r.Acquire(ctx, b)
			cancel()
			if err == nil {
				r.Errorf("%s was granted in time: %+v", name, got)
			}
		}
		time.Sleep(3 * time.Second) // longer than the slowest of them would take
		held, err := r.List(r.ctx, "")
		r.ok(err)
		if len(held) > 0 {
			r.Errorf("held: %+v", held)
		}
	})
}

// TestALockedGapEndsNoLock has a transaction lock ranges of dblock's tables in which a process
// acquires in all modes. Its other locks go on, and so do acquisitions elsewhere.
func TestALockedGapEndsNoLock(t *testing.T) {
	each(t, plain, func(r rig) {
		for _, table := range []string{"dblock_reader", "dblock_permit", "dblock_ticket"} {
			r.Run(table, func(t *testing.T) { r.lockedGap(t, table) })
		}
	})
}

func (r rig) lockedGap(t *testing.T, table string) {
	locker := func(o LeaseOptions) *LeaseLocker {
		o.TTL = 6 * time.Second
		l, err := NewLeaseLocker(r.ctx, r.db, o)
		r.ok(err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = l.Close(ctx)
		})
		return l
	}
	l, fair := locker(LeaseOptions{}), locker(LeaseOptions{Fair: true})
	key := func(name string) string { return table + " " + name }
	held, err := l.Acquire(r.ctx, key("held"))
	r.ok(err)
	tx, err := r.db.BeginTx(r.ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	r.ok(err)
	defer func() { _ = tx.Rollback() }()
	var n int
	r.ok(tx.QueryRowContext(r.ctx, "SELECT COUNT(*) FROM "+table+" FOR UPDATE").Scan(&n))
	acquired := make(chan int, 10)
	until := time.Now().Add(8 * time.Second)
	for i, acquire := range []func(context.Context, string) (*dblock.Lock, error){
		func(ctx context.Context, key string) (*dblock.Lock, error) { return l.TryAcquire(ctx, key) },
		func(ctx context.Context, key string) (*dblock.Lock, error) {
			return l.TryAcquireAll(ctx, []string{key, key + "x"})
		},
		func(ctx context.Context, key string) (*dblock.Lock, error) {
			return l.Acquire(ctx, key, dblock.WithShared())
		},
		func(ctx context.Context, key string) (*dblock.Lock, error) {
			return l.Acquire(ctx, key, dblock.WithPermits(1, 2))
		},
		func(ctx context.Context, _ string) (*dblock.Lock, error) { return fair.Acquire(ctx, key("fair")) },
	} {
		for range 2 {
			go func() {
				got := 0
				for n := 0; time.Now().Before(until); n++ {
					ctx, cancel := context.WithTimeout(r.ctx, time.Second)
					lock, err := acquire(ctx, fmt.Sprintf("%s %d %d %p", table, i, n, &n))
					if err == nil {
						got++
						_ = lock.Release(ctx)
					}
					cancel()
				}
				if i > 1 {
					got = 1 // its rows may be those that are locked
				}
				acquired <- got
			}()
		}
	}
	for range 10 {
		if got := <-acquired; got == 0 {
			t.Error("a caller of exclusive locks acquired none")
		}
	}
	if err := held.Context().Err(); err != nil {
		t.Errorf("a lock that was held: %v", context.Cause(held.Context()))
	}
	_ = held.Release(r.ctx)
}

// TestARefusedGuardLocksNothing leaves a transaction open whose guard was refused. Others acquire
// beside it at once, in each mode. The control has the guard of the transaction alone, which locks
// the place of the row that it did not find.
func TestARefusedGuardLocksNothing(t *testing.T) {
	each(t, plain, func(r rig) {
		l, err := NewLeaseLocker(r.ctx, r.db, LeaseOptions{})
		r.ok(err)
		defer func() { _ = l.Close(r.ctx) }()
		for name, opts := range map[string][]dblock.Option{"shared": {dblock.WithShared()}, "permits": {dblock.WithPermits(1, 2)}} {
			for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
				for _, alone := range []bool{false, true} {
					key := fmt.Sprint(name, level, alone)
					lock, err := l.Acquire(r.ctx, key, opts...)
					r.ok(err)
					fence, _ := lock.Fence()
					fence.Handle = member.NewID() // of no row
					r.ok(lock.Release(r.ctx))
					tx, err := r.db.BeginTx(r.ctx, &sql.TxOptions{Isolation: level})
					r.ok(err)
					guard := l.Guard
					if alone {
						guard = Guards{}.Guard
					}
					if err := guard(r.ctx, tx, fence); !errors.Is(err, dblock.ErrFenced) {
						r.Errorf("%s: %v", key, err)
					}
					free := r.insertsAtOnce(fence)
					if free == alone {
						r.Errorf("%s: a row in the place of the missing one can be written: %v", key, free)
					}
					r.ok(tx.Rollback())
				}
			}
		}
	})
}

// insertsAtOnce reports whether a row can be written in the place of a fence's within the server's
// least bound.
func (r rig) insertsAtOnce(f dblock.Fence) bool {
	r.Helper()
	conn, err := r.db.Conn(r.ctx)
	r.ok(err)
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(r.ctx, "SET SESSION innodb_lock_wait_timeout = 1")
	r.ok(err)
	text, args := "INSERT INTO dblock_reader (lease_key, handle, token) VALUES (?, ?, 1)", []any{f.Key, f.Handle[:]}
	if f.Mode == dblock.ModePermit {
		text, args = "INSERT INTO dblock_permit (lease_key, slot) VALUES (?, 3)", []any{f.Key}
	}
	_, err = conn.ExecContext(r.ctx, text, args...)
	if err != nil && !mysql.IsLocked(err) {
		r.Fatal(err)
	}
	return err == nil
}
