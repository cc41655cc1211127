package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// holdKey holds a key as another process would.
func holdKey(t *testing.T, database, key string) (*dblock.Lock, leases) {
	t.Helper()
	l, closeAll, err := databaseFlags{Database: strings.TrimPrefix(database, "--database=")}.leases(t.Context(), leaseFlags{TTL: time.Minute, Label: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeAll() })
	lock, err := l.Acquire(t.Context(), key, dblock.WithLabel("by \x1b[31mhand"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release(context.Background()) })
	return lock, l
}

func TestLocksAndUnlock(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "locks", database).wantFailure(t, 1, "migrate up")
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		invoke(t, "", "locks", database).want(t, 0, "nothing is held")
		lock, _ := holdKey(t, database, "k")
		token := strconv.FormatInt(fence(t, lock).Token, 10)
		shown := invoke(t, "", "locks", database)
		shown.want(t, 0, token)
		if strings.Contains(shown.out, "\x1b") || !strings.Contains(shown.out, `by \x1b[31mhand`) {
			t.Errorf("shown as %q", shown.out)
		}
		var list []shownLock
		if err := json.Unmarshal([]byte(invoke(t, "", "locks", "--json", database).out), &list); err != nil || len(list) != 1 ||
			list[0].Key != "k" || strconv.FormatInt(list[0].Token, 10) != token || list[0].RemainingMs <= 0 || len(list[0].Member) != 32 {
			t.Errorf("%+v, %v", list, err)
		}
		invoke(t, "", "unlock", "k", "--token=1", database).wantFailure(t, 1, "token "+token)
		invoke(t, "", "unlock", "nobody's", "--token="+token, database).wantFailure(t, 1, "no process holds")
		invoke(t, "", "unlock", "k", database).wantFailure(t, 2, "--token")
		invoke(t, "", "unlock", "k", "--token="+token, database).want(t, 0, "released k")
		invoke(t, "", "locks", database).want(t, 0, "nothing is held")
	})
}

func TestLocksSharedAndPermits(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		_, l := holdKey(t, database, "exclusive")
		reads, err := l.Acquire(t.Context(), "k", dblock.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reads.Release(context.Background()) }()
		two, err := l.Acquire(t.Context(), "k", dblock.WithPermits(2, 3))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = two.Release(context.Background()) }()
		shown := invoke(t, "", "locks", database)
		for _, want := range []string{"exclusive", "shared", "2 of 3 permits"} {
			shown.want(t, 0, want)
		}
		var list []shownLock
		if err := json.Unmarshal([]byte(invoke(t, "", "locks", "--json", database).out), &list); err != nil || len(list) != 3 ||
			list[1].Mode != "shared" || list[2].Mode != "permits" || list[2].Permits != 2 || list[2].Limit != 3 {
			t.Errorf("%+v, %v", list, err)
		}
		echo := []string{"--", "sh", "-c", "echo $DBLOCK_MODE $DBLOCK_TOKEN"}
		lock := func(args ...string) result {
			return invoke(t, "", append(append([]string{"lock", database, "--wait=0", "k"}, args...), echo...)...)
		}
		lock("--shared").want(t, 0, fmt.Sprint("shared ", fence(t, reads).Token))
		lock().wantFailure(t, 1, "is held by")
		lock("--permits=1", "--limit=3").want(t, 0, "permits 1")
		lock("--permits=2", "--limit=3").wantFailure(t, 1, "is held by")
		lock("--permits=1", "--limit=4").wantFailure(t, 1, "has 3 permits")
		lock("--permits=1").wantFailure(t, 2, "--limit")
		lock("--permits=1", "--limit=3", "--shared").wantFailure(t, 2, "choose one")
		lock("--fair", "--shared").wantFailure(t, 2, "--fair")
		lock("--permits=0", "--limit=0").wantFailure(t, 2, "limit: 0 is not within 1 to")
		invoke(t, "", "lock", database, "--wait=-1s", "k", "--", "true").wantFailure(t, 2, "--wait: -1s is negative")
		invoke(t, "", "permits", "k", "0", database).wantFailure(t, 2, "limit")
		invoke(t, "", "permits", "k", "4", database).want(t, 0, "k has 4 permits")
		lock("--permits=2", "--limit=4").want(t, 0, "permits 1")
		invoke(t, "", "lock", database, "--fair", "--wait=0", "other", "--", "echo", "ran").want(t, 0, "ran")
		invoke(t, "", "unlock", "k", fmt.Sprint("--token=", fence(t, reads).Token), database).want(t, 0, "released k")
		invoke(t, "", "unlock", "k", fmt.Sprint("--token=", fence(t, two).Token), database).want(t, 0, "released k")
		lock("--permits=4", "--limit=4").want(t, 0, "permits 1")
		lock().want(t, 0, "exclusive 1")
	})
}

func fence(t *testing.T, lock *dblock.Lock) dblock.Fence {
	t.Helper()
	f, ok := lock.Fence()
	if !ok {
		t.Fatal("no fence")
	}
	return f
}

func TestLockRunsACommand(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		invoke(t, "", "lock", database, "k", "--", "sh", "-c", "echo $DBLOCK_KEY $DBLOCK_TOKEN $DBLOCK_HANDLE").want(t, 0, "k 1")
		told, err := process(t.Context(), strings.TrimPrefix(database, "--database="), "lock", "k", "--",
			"sh", "-c", "echo $DBLOCK_KEY ${DBLOCK_DATABASE-none}").Output()
		if err != nil || string(told) != "k none\n" {
			t.Errorf("%q, %v", told, err)
		}
		if r := invoke(t, "", "lock", database, "k", "--", "sh", "-c", "exit 7"); r.code != 7 || r.err != "" {
			t.Errorf("%+v", r)
		}
		if r := invoke(t, "", "lock", database, "k", "--", "sh", "-c", "kill -9 $$"); r.code != 128+9 {
			t.Errorf("%+v", r)
		}
		invoke(t, "", "lock", database, "k", "--", "no such command").wantFailure(t, 1, "no such command")
		invoke(t, "", "lock", database, "k").wantFailure(t, 2, "command")
		invoke(t, "", "lock", database, "--ttl=1ms", "k", "--", "true").wantFailure(t, 2, "TTL")
		invoke(t, "", "lock", database, "--ttl=0", "k", "--", "true").wantFailure(t, 2, "--ttl")
		lock, _ := holdKey(t, database, "k")
		invoke(t, "", "lock", database, "--wait=0", "k", "--", "echo", "ran").wantFailure(t, 1, "is held by")
		waited := invoke(t, "", "lock", database, "--wait=50ms", "k", "--", "echo", "ran")
		// The wait may end while the server is asked once more, or before it was asked.
		if !strings.Contains(waited.err, "outcome unknown") && !strings.Contains(waited.err, "before the server was asked") {
			waited.wantFailure(t, 1, "is held by")
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		invoke(t, "", "lock", database, "--wait=0", "k", "--", "echo", "ran").want(t, 0, "ran")
	})
}

// untilExists waits for a file, which a shell makes once it has set its trap.
func untilExists(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return
		} else if time.Now().After(end) {
			t.Fatalf("the command has not begun: %v", err)
		}
	}
}

// TestLockEndsTheCommandWhenTheLockIsLost: another process would run it beside us.
func TestLockEndsTheCommandWhenTheLockIsLost(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		ended, trapped := make(chan result, 1), filepath.Join(t.TempDir(), "trapped")
		go func() {
			ended <- invoke(t, "", "lock", database, "--ttl=10s", "k", "--", "sh", "-c",
				"trap 'echo asked; exit 3' TERM; : > \"$1\"; while :; do sleep 0.05; done", "sh", trapped)
		}()
		db, err := databaseFlags{Database: strings.TrimPrefix(database, "--database=")}.open()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		for held := 0; held == 0; {
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM dblock_lease WHERE handle IS NOT NULL").Scan(&held); err != nil {
				t.Fatal(err)
			}
			select {
			case r := <-ended:
				t.Fatalf("it has ended already: %+v", r)
			default:
			}
		}
		untilExists(t, trapped)
		if _, err := db.ExecContext(t.Context(), "DELETE FROM dblock_member"); err != nil {
			t.Fatal(err)
		}
		if r := <-ended; r.code != 3 || !strings.Contains(r.err, "lost") || r.out != "asked\n" {
			t.Errorf("%+v", r)
		}
	})
}

// TestLockEndsTheCommandAfterUnlock: an operator takes the lock away. The command ends within the
// TTL, and dblock fails, even if the command succeeds.
func TestLockEndsTheCommandAfterUnlock(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		ended, trapped := make(chan result, 1), filepath.Join(t.TempDir(), "trapped")
		go func() {
			ended <- invoke(t, "", "lock", database, "--ttl=10s", "k", "--", "sh", "-c",
				"trap 'echo asked; exit 0' TERM; : > \"$1\"; while :; do sleep 0.05; done", "sh", trapped)
		}()
		var list []shownLock
		for len(list) == 0 {
			if err := json.Unmarshal([]byte(invoke(t, "", "locks", "--json", database).out), &list); err != nil {
				t.Fatal(err)
			}
		}
		untilExists(t, trapped)
		invoke(t, "", "unlock", "k", fmt.Sprint("--token=", list[0].Token), database).want(t, 0, "released k")
		select {
		case r := <-ended:
			if r.code == 0 || !strings.Contains(r.err, "taken away") || r.out != "asked\n" {
				t.Errorf("%+v", r)
			}
		case <-time.After(time.Minute):
			t.Error("the command runs on")
		}
	})
}

// TestLockPassesSignalsOn: a signal to dblock is meant for the command.
func TestLockPassesSignalsOn(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		cmd := exec.CommandContext(t.Context(), os.Args[0], "lock", database, "k", "--", "sh", "-c",
			"trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
		cmd.Env = append(os.Environ(), envCommand+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var line string
		if _, err := fmt.Fscanln(out, &line); err != nil || line != "ready" {
			t.Fatal(line, err)
		}
		_ = cmd.Process.Signal(syscall.SIGINT)
		if _, err := fmt.Fscanln(out, &line); err != nil || line != "asked" {
			t.Error(line, err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("%v, status %d", err, cmd.ProcessState.ExitCode())
		}
	})
}
