package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	pauseTTL   = time.Second // the shortest
	pauses     = 6           // in a short run
	soakPauses = 100
	holders    = 3
)

// countUntilKilled adds one to a counter again and again, each time under the lock: it reads, waits,
// and writes. It writes a line when it has read, and one when its write is acknowledged.
func (e Lease) countUntilKilled(dsn, mode string) error {
	ctx := context.Background()
	db, err := sql.Open(suite.DriverOf(e.Kind), os.Getenv(holderData))
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

// pauseHolders stops a holder after it has read, until another one has written. It returns how many
// writes were acknowledged, and the counter.
func (v *env) pauseHolders(t *testing.T, mode string, data *env, n int) (written, counted int64) {
	t.Helper()
	data.exec(t, "DROP TABLE IF EXISTS counter")
	data.exec(t, "CREATE TABLE counter (n INT)")
	data.exec(t, "INSERT INTO counter VALUES (0)")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	lines := make(chan counterLine)
	var readers sync.WaitGroup
	var all []*suite.Child
	for range holders {
		c := v.startHolderOf(t, ctx, mode, data.dsn)
		all = append(all, c)
		readers.Go(func() {
			for c.Lines.Scan() {
				lines <- counterLine{c, strings.TrimSpace(c.Lines.Text())}
			}
		})
	}
	next := func(until <-chan time.Time) (line counterLine) {
		select {
		case line = <-lines:
			if line.text == "written" {
				written++
			}
		case <-until:
		case <-ctx.Done():
			t.Fatal("no holder works")
		}
		return line
	}
	for range n {
		paused := next(nil)
		for paused.text != "read" {
			paused = next(nil)
		}
		_ = suite.Suspend(paused.by.Process)
		after := time.After(3 * pauseTTL) // it may have stopped inside a transaction that keeps others out
		for line := next(after); line.text != "" && (line.text != "written" || line.by == paused.by); {
			line = next(after)
		}
		_ = suite.Resume(paused.by.Process)
		for line := next(nil); line.text != "read" || line.by != paused.by; { // it has tried to write
			line = next(nil)
		}
	}
	for _, c := range all {
		_ = c.Process.Kill()
	}
	go func() {
		readers.Wait()
		close(lines)
	}()
	for line := range lines {
		if line.text == "written" {
			written++
		}
	}
	for _, c := range all {
		_ = c.Wait()
	}
	return written, data.count(t, "SELECT n FROM counter")
}

// takesOverFromTheKilled kills a holder: a waiter has the lock when the holder's time has ended.
func takesOverFromTheKilled(t *testing.T, v *env) {
	v.exec(t, "CREATE TABLE counter (n INT)")
	v.exec(t, "INSERT INTO counter VALUES (0)")
	holder := v.startHolder(t, suite.Soon(t), guardedWrites)
	holder.Says(t, "read") // it holds the key
	_ = suite.Suspend(holder.Process)
	holder.Kill()
	suite.IsFree(t, v.process(t, LeaseOptions{}), "counter")
}

// releaseWhenTold holds a lease, and releases it when the test closes its input. Its last line says
// what Release returned.
func (e Lease) releaseWhenTold(dsn, key string) error {
	ctx := context.Background()
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: pauseTTL})
	if err != nil {
		return err
	}
	lock, err := l.Acquire(ctx, key)
	if err != nil {
		return err
	}
	fmt.Println("holds")
	suite.WaitToGoOn()
	if err := lock.Release(ctx); errors.Is(err, dblock.ErrLost) {
		fmt.Println("lost")
	} else {
		fmt.Println("released", err)
	}
	return nil
}

// aPauseBeforeARelease stops processes until another process has their keys. Their next call is
// Release, which says that the lock was lost.
func aPauseBeforeARelease(t *testing.T, v *env) {
	const processes = 4
	l := v.process(t, LeaseOptions{})
	var children []*suite.Child
	for i := range processes {
		cmd := exec.CommandContext(suite.Soon(t), os.Args[0])
		cmd.Env = append(os.Environ(), holderDSN+"="+v.dsn, holderKind+"="+string(v.e.Kind),
			holderMode+"="+releasesWhenTold, holderKey+"="+fmt.Sprint("k", i))
		c := suite.StartChild(t, cmd)
		t.Cleanup(c.Kill)
		c.Says(t, "holds")
		require.NoError(t, suite.Suspend(c.Process))
		children = append(children, c)
	}
	for i, c := range children {
		next := suite.Acquire(t, l, fmt.Sprint("k", i))
		_ = c.In.Close()
		require.NoError(t, suite.Resume(c.Process))
		c.Says(t, "lost")
		suite.Release(t, next)
	}
}

const stopTTL = 2 * time.Second

// writeWhenTold holds a lease, writes inside a guarded transaction, and commits when the test closes
// its input. Its last line says what the commit returned.
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

// inUnboundedTx guards a transaction by hand, and nothing ends it.
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
	query := fmt.Sprintf("SELECT token FROM dblock_lease WHERE lease_key = '%s' %s", lock.Key(), share)
	if err := tx.QueryRowContext(ctx, query).Scan(&token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, write); err != nil {
		return err
	}
	inside()
	return tx.Commit()
}

// endsWhoStopsInAGuard stops processes inside transactions that keep others out. The server ends the
// guarded transaction, and its commit comes too late. The control is one that nothing bounds: its
// lease is not taken over.
func endsWhoStopsInAGuard(t *testing.T, v *env) {
	v.exec(t, "CREATE TABLE written (by_mode VARCHAR(40))")
	children := map[string]*suite.Child{}
	for _, mode := range []string{staysInGuard, staysUnbounded} {
		c := v.startHolder(t, t.Context(), mode)
		t.Cleanup(c.Kill)
		c.Says(t, "inside")
		require.NoError(t, suite.Suspend(c.Process))
		children[mode] = c
	}
	l := v.process(t, LeaseOptions{})
	next := suite.Acquire(t, l, staysInGuard)
	for end := time.Now().Add(stopTTL); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		require.Error(t, suite.Second(l.TryAcquire(t.Context(), staysUnbounded)), "the control")
	}
	for mode, says := range map[string]string{staysInGuard: "refused", staysUnbounded: "committed"} {
		_ = children[mode].In.Close()
		require.NoError(t, suite.Resume(children[mode].Process))
		children[mode].Says(t, says)
	}
	assert.Zero(t, v.count(t, "SELECT count(*) FROM written WHERE by_mode = '"+staysInGuard+"'"))
	suite.Release(t, next)
	suite.IsFree(t, l, staysUnbounded)
}
