package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

const stopTTL = 3 * time.Second

// writeWhenTold holds a lease named for what it does, writes inside a guarded transaction, and commits when it is told
// to. Its last line says what became of that.
func (e Lease) writeWhenTold(dsn, mode string) error {
	ctx := context.Background()
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: stopTTL})
	if err != nil {
		return err
	}
	lock, err := l.Acquire(ctx, mode)
	if err != nil {
		return err
	}
	write := fmt.Sprintf("INSERT INTO written VALUES ('%s')", mode)
	inside := func() {
		fmt.Println("inside")
		suite.WaitToGoOn()
	}
	if mode == staysInGuard {
		err = e.Guarded(ctx, l, lock, write, inside)
	} else {
		err = e.inUnboundedTx(ctx, dsn, lock, write, inside)
	}
	if err != nil {
		fmt.Println("refused")
	} else {
		fmt.Println("committed")
	}
	return nil
}

// inUnboundedTx guards a transaction as one might by hand: nothing ends it.
func (e Lease) inUnboundedTx(ctx context.Context, dsn string, lock *dblock.Lock, write string, inside func()) error {
	db, err := sql.Open(suite.DriverOf(e.Kind), dsn)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	share := "FOR SHARE"
	if e.Kind != devdb.Postgres {
		share = "LOCK IN SHARE MODE"
	}
	var token int64
	err = tx.QueryRowContext(ctx, fmt.Sprintf("SELECT token FROM dblock_lease WHERE lease_key = '%s' %s", lock.Key(), share)).Scan(&token)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, write); err != nil {
		return err
	}
	inside()
	return tx.Commit()
}

// endsWhoStopsInAGuard stops processes inside transactions that keep others from taking the lease over: the server ends
// the guarded one, and its commit comes too late. The control is one that nothing bounds: its lease stays where it is.
func endsWhoStopsInAGuard(t *testing.T, v *env) {
	v.exec(t, "CREATE TABLE written (who VARCHAR(40))")
	children := map[string]*suite.Child{}
	for _, mode := range []string{staysInGuard, staysUnbounded} {
		c := v.startHolder(t, suite.Soon(t), mode)
		c.Says(t, "inside")
		_ = suite.Suspend(c.Process)
		defer c.Kill()
		children[mode] = c
	}
	began := time.Now()
	l := v.process(t, LeaseOptions{})
	next := suite.Acquire(t, l, staysInGuard)
	took := time.Since(began)
	t.Logf("taken over %v after its holder was stopped in a guarded transaction, of a TTL of %v", took, stopTTL)
	if took > 2*stopTTL {
		t.Errorf("taken over after %v", took)
	}
	for end := began.Add(2 * stopTTL); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := l.TryAcquire(t.Context(), staysUnbounded); err == nil {
			t.Fatal("taken from under a lock of its row: this shows nothing")
		}
	}
	for mode, says := range map[string]string{staysInGuard: "refused", staysUnbounded: "committed"} {
		_ = children[mode].In.Close()
		_ = suite.Resume(children[mode].Process)
		children[mode].Says(t, says)
	}
	if n := v.count(t, "SELECT count(*) FROM written WHERE who = '"+staysInGuard+"'"); n != 0 {
		t.Errorf("%d writes of a holder that was refused", n)
	}
	suite.Release(t, next)
	suite.Release(t, suite.Acquire(t, l, staysUnbounded))
}

// neverCommitsWhatIsLost loses the lock inside a guarded transaction: its user is told so, and not that the outcome was
// unknown, as the commit was never sent.
func neverCommitsWhatIsLost(t *testing.T, v *env) {
	v.exec(t, "CREATE TABLE written (n INT)")
	l := v.process(t, LeaseOptions{TTL: 2 * time.Second})
	for range 3 {
		lock := suite.Acquire(t, l, "k")
		err := v.e.Guarded(t.Context(), l, lock, "INSERT INTO written VALUES (1)", func() {
			v.exec(t, "DELETE FROM dblock_member")
			suite.IsLost(t, lock, dblock.Evicted)
		})
		if !errors.Is(err, dblock.ErrLost) || errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("told %v", err)
		}
	}
	if n := v.count(t, "SELECT count(*) FROM written"); n != 0 {
		t.Errorf("%d writes", n)
	}
}

// aGuardedTxOfAnEndedLockIsLost: the error says that the lock was lost or released, and not only that a context ended.
func aGuardedTxOfAnEndedLockIsLost(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	released := suite.Acquire(t, l, "k")
	suite.Release(t, released)
	var lost *dblock.LostError
	err := v.e.Guarded(t.Context(), l, released, "SELECT 1", func() { t.Error("ran under a released lock") })
	if !errors.As(err, &lost) || lost.Reason != dblock.Released {
		t.Errorf("of a released lock: %v", err)
	}
	within := suite.Acquire(t, l, "k")
	err = v.e.Guarded(t.Context(), l, within, "SELECT 1", func() { suite.Release(t, within) })
	if !errors.Is(err, dblock.ErrLost) {
		t.Errorf("released within: %v", err)
	}
	ended := suite.Acquire(t, l, "k", dblock.WithMaxHold(20*time.Millisecond))
	suite.IsLost(t, ended, dblock.Ended)
	if err := v.e.Guarded(t.Context(), l, ended, "SELECT 1", func() {}); !errors.As(err, &lost) || lost.Reason != dblock.Ended {
		t.Errorf("of a lost lock: %v", err)
	}
	if bound := ended.Bind(t.Context()); bound.Err() == nil {
		t.Error("a context that was bound to an ended lock is alive")
	}
}

// aGuardedTxLeavesNothingBehind runs guarded transactions under one lock. DBLOCK_GUARDED says how many, instead of 300: if
// there are many and no other test runs beside them, the heap must not grow.
func aGuardedTxLeavesNothingBehind(t *testing.T, v *env) {
	n, _ := strconv.Atoi(os.Getenv("DBLOCK_GUARDED"))
	n = max(n, 300)
	l := v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, l, "k")
	live := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	run := func(n int) {
		for range n {
			if err := v.e.Guarded(t.Context(), l, lock, "SELECT 1", func() {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(200)
	before, began := live(), time.Now()
	run(n)
	grown := live() - before
	t.Logf("%d guarded transactions in %v: the heap grew by %d bytes", n, time.Since(began), grown)
	if n > 300 && grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	suite.Release(t, lock)
}
