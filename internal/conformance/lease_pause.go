package conformance

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
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	pauseTTL   = time.Second // the shortest
	pauses     = 10          // in a short run
	soakPauses = 100
	holders    = 3
)

// countUntilKilled adds one to a counter, over and over, each time under the lock: it reads, takes its time, and
// writes. It writes a line when it has read, and one when it was told that its write stands.
func (e Lease) countUntilKilled(dsn string, guard bool) error {
	ctx := context.Background()
	db, err := sql.Open(driverOf(e.Kind), dsn)
	if err != nil {
		return err
	}
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: pauseTTL, Poll: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	for {
		err := dblock.Do(ctx, l, "counter", func(_ context.Context, lock *dblock.Lock) error {
			var n int
			if err := db.QueryRowContext(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
				return err
			}
			fmt.Println("read")
			time.Sleep(20 * time.Millisecond)
			write := fmt.Sprintf("UPDATE counter SET n = %d", n+1)
			if guard {
				err = e.Guarded(ctx, l, lock, write, func() {})
			} else {
				_, err = db.ExecContext(ctx, write)
			}
			if err == nil {
				fmt.Println("written")
			}
			return err
		})
		if err != nil && !errors.Is(err, dblock.ErrLost) && !errors.Is(err, dblock.ErrFenced) &&
			!errors.Is(err, dblock.ErrOutcomeUnknown) && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "holder:", err) // a pause has consequences; what counts is the counter
		}
	}
}

// losesNothingToAPause stops whoever holds the lock for longer than the TTL, again and again: no write that
// was acknowledged is ever lost.
func losesNothingToAPause(t *testing.T, v *vault) {
	n := pauses
	if os.Getenv(envSoak) != "" {
		n = soakPauses
	}
	written, counted := v.pauseHolders(t, guardedWrites, n)
	if counted < written {
		t.Errorf("%d writes were acknowledged, the counter stands at %d", written, counted)
	}
	t.Logf("%d pauses, %d writes, the counter stands at %d", n, written, counted)
}

// controlLosesToAPause is the same program without the guard.
func controlLosesToAPause(t *testing.T, v *vault) {
	for range 3 {
		written, counted := v.pauseHolders(t, unguardedWrites, 5)
		t.Logf("%d writes, the counter stands at %d", written, counted)
		if counted < written {
			return
		}
	}
	t.Error("nothing was lost: the test with the guard shows nothing")
}

// pauseHolders returns how many writes were acknowledged, and what the counter stands at.
func (v *vault) pauseHolders(t *testing.T, mode string, n int) (written, counted int64) {
	t.Helper()
	v.exec(t, "DROP TABLE IF EXISTS counter")
	v.exec(t, "CREATE TABLE counter (n INT)")
	v.exec(t, "INSERT INTO counter VALUES (0)")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var acknowledged atomic.Int64
	reads := make(chan *exec.Cmd)
	var readers sync.WaitGroup
	var all []*exec.Cmd
	for range holders {
		child := v.startHolder(t, ctx, mode)
		cmd := child.Cmd
		all = append(all, cmd)
		readers.Go(func() {
			for child.lines.Scan() {
				switch strings.TrimSpace(child.lines.Text()) {
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
			_ = holder.Process.Signal(syscall.SIGSTOP)
			time.Sleep(pauseTTL * 3 / 2) // others take over meanwhile
			_ = holder.Process.Signal(syscall.SIGCONT)
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
	return acknowledged.Load(), v.count(t, "SELECT n FROM counter")
}
