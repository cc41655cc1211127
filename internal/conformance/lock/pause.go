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
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const (
	pauseTTL   = time.Second // the shortest
	pauses     = 10          // in a short run
	soakPauses = 100
	holders    = 3
)

// countUntilKilled adds one to a counter, over and over, each time under the lock: it reads, takes its time, and
// writes. It writes a line when it has read, and one when it was told that its write stands.
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
		if err != nil && !errors.Is(err, dblock.ErrLost) && !errors.Is(err, dblock.ErrFenced) &&
			!errors.Is(err, dblock.ErrOutcomeUnknown) && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "holder:", err) // a pause has consequences; what counts is the counter
		}
	}
}

func (e Lease) countOnce(ctx context.Context, db *sql.DB, l Leases, lock *dblock.Lock, mode string) error {
	nothing := func(*sql.Tx) error { return nil }
	if mode == raisedWrites {
		if err := fencedTx(ctx, db, lock, e.Raise, nothing); err != nil {
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
		err = fencedTx(ctx, db, lock, e.CheckRaised, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, write)
			return err
		})
	default:
		_, err = db.ExecContext(ctx, write)
	}
	if err == nil {
		fmt.Println("written")
	}
	return err
}

// fencedTx is a transaction of the host's that begins with one of the Guards.
func fencedTx(
	ctx context.Context, db *sql.DB, lock *dblock.Lock,
	check func(context.Context, *sql.Tx, dblock.Fence, string) error, then func(*sql.Tx) error,
) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	f, _ := lock.Fence()
	if err := check(ctx, tx, f, "counter"); err != nil {
		return err
	}
	if err := then(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// losesNothingToAPause stops whoever holds the lock for longer than the TTL, again and again: no write that
// was acknowledged is ever lost.
func losesNothingToAPause(t *testing.T, v *env) {
	v.losesNothing(t, guardedWrites, v, pauses)
}

// losesNothingElsewhere is the same where the data is in another database, and each holder raises its fence there.
func losesNothingElsewhere(t *testing.T, v *env) {
	v.losesNothing(t, raisedWrites, v.e.env(t), pauses/2)
}

func (v *env) losesNothing(t *testing.T, mode string, data *env, n int) {
	t.Helper()
	if os.Getenv(suite.EnvSoak) != "" {
		n = soakPauses
	}
	written, counted := v.pauseHolders(t, mode, data, n)
	if counted < written {
		t.Errorf("%d writes were acknowledged, the counter stands at %d", written, counted)
	}
	t.Logf("%d pauses, %d writes, the counter stands at %d", n, written, counted)
}

// controlLosesToAPause is the same program without the guard.
func controlLosesToAPause(t *testing.T, v *env) {
	for range 3 {
		written, counted := v.pauseHolders(t, unguardedWrites, v, 5)
		t.Logf("%d writes, the counter stands at %d", written, counted)
		if counted < written {
			return
		}
	}
	t.Error("nothing was lost: the test with the guard shows nothing")
}

// pauseHolders returns how many writes were acknowledged, and what the counter stands at.
func (v *env) pauseHolders(t *testing.T, mode string, data *env, n int) (written, counted int64) {
	t.Helper()
	data.exec(t, "DROP TABLE IF EXISTS counter")
	data.exec(t, "CREATE TABLE counter (n INT)")
	data.exec(t, "INSERT INTO counter VALUES (0)")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var acknowledged atomic.Int64
	reads := make(chan *exec.Cmd)
	var readers sync.WaitGroup
	var all []*exec.Cmd
	for range holders {
		child := v.startHolderOf(t, ctx, mode, data.dsn)
		cmd := child.Cmd
		all = append(all, cmd)
		readers.Go(func() {
			for child.Lines.Scan() {
				switch strings.TrimSpace(child.Lines.Text()) {
				case "written":
					acknowledged.Add(1)
				case "read":
					select {
					case reads <- cmd:
					default: // nobody is to be paused now
					}
				}
			}
		})
	}
	for range n {
		select {
		case holder := <-reads: // it has read, and not written yet
			_ = suite.Suspend(holder.Process)
			time.Sleep(pauseTTL * 3 / 2) // others take over meanwhile
			_ = suite.Resume(holder.Process)
		case <-ctx.Done():
			t.Fatal("nobody works")
		}
	}
	time.Sleep(pauseTTL) // the last one goes on, too
	for _, cmd := range all {
		_ = cmd.Process.Kill()
	}
	readers.Wait()
	for _, cmd := range all {
		_ = cmd.Wait()
	}
	return acknowledged.Load(), data.count(t, "SELECT n FROM counter")
}
