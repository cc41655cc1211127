package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const (
	pauseTTL   = time.Second // the shortest
	pauses     = 6           // in a short run
	soakPauses = 100
	holders    = 3
)

// countUntilKilled adds one to a counter again and again, each time under the lock: it reads,
// waits, and writes. It writes a line when it has read, and one when its write is acknowledged.
func (e Lease) countUntilKilled(ctx context.Context, dsn, mode string) error {
	db, err := e.connect(os.Getenv(holderData))
	if err != nil {
		return err
	}
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: pauseTTL, Poll: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	for {
		err := dblock.Do(ctx, l, "counter", func(_ context.Context, lock *dblock.Lock) error {
			return e.countOnce(ctx, db, l, lock, mode)
		})
		if err != nil && !isAny(err, dblock.ErrLost, dblock.ErrFenced, dblock.ErrOutcomeUnknown, context.Canceled) {
			fmt.Fprintln(os.Stderr, "holder:", err) // a pause has consequences; the counter decides
		}
	}
}

func (e Lease) countOnce(ctx context.Context, db *sql.DB, l Leases, lock *dblock.Lock, mode string) error {
	if mode == raisedWrites {
		if err := fenceTx(ctx, db, lock, e.Raise, "counter", func(*sql.Tx) error { return nil }); err != nil {
			return err
		}
	}
	var n int
	if err := db.QueryRowContext(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
		return err
	}
	fmt.Println("read")
	time.Sleep(20 * time.Millisecond)
	write := fmt.Sprintf("UPDATE counter SET n = %d", n+1)
	var err error
	switch mode {
	case guardedWrites:
		err = e.Guarded(ctx, l, lock, write, func() {})
	case raisedWrites:
		err = fenceTx(ctx, db, lock, e.CheckRaised, "counter", func(tx *sql.Tx) error {
			return suite.Second(tx.ExecContext(ctx, write))
		})
	default:
		_, err = db.ExecContext(ctx, write)
	}
	if err == nil {
		fmt.Println("written")
	}
	return err
}

// losesNothingToAPause stops the holder for longer than the TTL, again and again: no acknowledged
// write is lost.
func losesNothingToAPause(t *testing.T, v *env) { v.losesNothing(t, guardedWrites, v, pauses) }

// losesNothingElsewhere is the same with the data in another database, in which each holder raises
// its fence.
func losesNothingElsewhere(t *testing.T, v *env) {
	v.losesNothing(t, raisedWrites, v.e.env(t), pauses/2)
}

func (v *env) losesNothing(t *testing.T, mode string, data *env, n int) {
	t.Helper()
	if os.Getenv(suite.EnvSoak) != "" {
		n = soakPauses
	}
	written, counted := v.pauseHolders(t, mode, data, n)
	assert.GreaterOrEqual(t, counted, written, "the counter, and the writes that were acknowledged")
	t.Logf("%d pauses, %d writes, the counter is %d", n, written, counted)
}

// controlLosesToAPause is the same program without the guard.
func controlLosesToAPause(t *testing.T, v *env) {
	for range 3 {
		if written, counted := v.pauseHolders(t, unguardedWrites, v, 4); counted < written {
			return
		}
	}
	t.Error("no write was lost: the test with the guard shows nothing")
}

// counterLine is what one of the holders said.
type counterLine struct {
	by   *suite.Child
	text string
}

func (v *env) makeCounter(t *testing.T) {
	t.Helper()
	v.Exec(t, "DROP TABLE IF EXISTS counter")
	v.Exec(t, "CREATE TABLE counter (n INT)")
	v.Exec(t, "INSERT INTO counter VALUES (0)")
}

// pauseHolders stops a holder after it has read, until another one has written. It returns how many
// writes were acknowledged, and the counter.
func (v *env) pauseHolders(t *testing.T, mode string, data *env, n int) (written, counted int64) {
	t.Helper()
	data.makeCounter(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	lines := make(chan counterLine)
	var reading sync.WaitGroup
	var all []*suite.Child
	for range holders {
		c := v.startHolder(t, ctx, mode, holderData+"="+data.DSN)
		all = append(all, c)
		reading.Go(func() {
			for c.Lines.Scan() {
				lines <- counterLine{c, strings.TrimSpace(c.Lines.Text())}
			}
		})
	}
	// next returns the first line that is wanted, or none if it takes too long.
	next := func(within time.Duration, wanted func(counterLine) bool) (line counterLine) {
		late := time.After(within)
		for {
			select {
			case line = <-lines:
				if line.text == "written" {
					written++
				}
				if wanted(line) {
					return line
				}
			case <-late:
				return counterLine{}
			}
		}
	}
	for range n {
		paused := next(time.Minute, func(l counterLine) bool { return l.text == "read" }).by
		require.NotNil(t, paused, "no holder works")
		_ = suite.Suspend(paused.Process)
		// It may have stopped inside a transaction that keeps others out.
		next(2*pauseTTL, func(l counterLine) bool { return l.text == "written" && l.by != paused })
		_ = suite.Resume(paused.Process)
		next(time.Minute, func(l counterLine) bool { return l.by == paused && l.text == "read" }) // it has tried to write
	}
	for _, c := range all {
		_ = c.Process.Kill()
	}
	go func() {
		reading.Wait()
		close(lines)
	}()
	for line := range lines {
		if line.text == "written" {
			written++
		}
	}
	return written, data.Count(t, "SELECT n FROM counter")
}

// takesOverFromTheKilled kills a holder: a waiter has the lock when the holder's time has ended.
func takesOverFromTheKilled(t *testing.T, v *env) {
	v.makeCounter(t)
	holder := v.startHolder(t, suite.Soon(t), guardedWrites)
	holder.Says(t, "read") // it holds the key
	_ = suite.Suspend(holder.Process)
	holder.Kill()
	suite.IsFree(t, v.process(t, LeaseOptions{}), "counter")
}

// holdUntilTold holds a lease, writes inside a guarded transaction if the mode says so, and ends
// when the test closes its input. Its last line says whether the commit or the release found it
// lost.
func (e Lease) holdUntilTold(ctx context.Context, dsn, mode string) error {
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: 2 * time.Second})
	if err != nil {
		return err
	}
	lock, err := l.Acquire(ctx, os.Getenv(holderKey))
	if err != nil {
		return err
	}
	wait := func() {
		fmt.Println("holds")
		suite.WaitToGoOn()
	}
	if mode == staysInGuard {
		err = e.Guarded(ctx, l, lock, "INSERT INTO written VALUES (1)", wait)
	} else {
		wait()
		err = lock.Release(ctx)
	}
	switch {
	case errors.Is(err, dblock.ErrLost):
		fmt.Println("lost")
	case err != nil:
		fmt.Println("refused", err)
	default:
		fmt.Println("done")
	}
	return nil
}

// startStopped starts a process that holds a key, and stops it. resume makes it go on, and returns
// its last line.
func (v *env) startStopped(t *testing.T, mode, key string) (resume func() string) {
	t.Helper()
	c := v.startHolder(t, suite.Soon(t), mode, holderKey+"="+key)
	c.Says(t, "holds")
	require.NoError(t, suite.Suspend(c.Process))
	return func() string {
		_ = c.In.Close()
		require.NoError(t, suite.Resume(c.Process))
		c.Lines.Scan()
		return c.Lines.Text()
	}
}

// aPauseBeforeARelease stops processes until another process has their keys. Their next call is
// Release, which says that the lock was lost.
func aPauseBeforeARelease(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	resume := map[string]func() string{}
	for _, key := range []string{"k1", "k2", "k3", "k4"} {
		resume[key] = v.startStopped(t, releasesWhenTold, key)
	}
	for key, resume := range resume {
		next := suite.Acquire(t, l, key)
		assert.Equal(t, "lost", resume())
		suite.Release(t, next)
	}
}

// endsWhoStopsInAGuard stops a process inside a guarded transaction, which keeps others out. The
// server ends the transaction, and its commit comes too late. The control is a transaction that
// nothing bounds: the lease of its dead holder is not taken over.
func endsWhoStopsInAGuard(t *testing.T, v *env) {
	_, written := v.written(t)
	resume := v.startStopped(t, staysInGuard, "guarded")
	l := v.process(t, LeaseOptions{})
	dead := suite.Acquire(t, l, "unbounded")
	unlock := v.Locked(t, "SELECT token FROM dblock_lease WHERE lease_key = 'unbounded' FOR UPDATE")
	v.ExpireMembers(t)
	next := suite.Acquire(t, l, "guarded")
	assert.Error(t, suite.Second(v.process(t, LeaseOptions{}).TryAcquire(t.Context(), "unbounded")), "the control")
	assert.NotEqual(t, "done", resume())
	assert.Zero(t, written())
	suite.Release(t, next)
	unlock()
	suite.IsFree(t, l, "unbounded")
	_ = dead.Release(t.Context())
}
