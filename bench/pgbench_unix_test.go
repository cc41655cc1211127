//go:build unix

package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The program and a shell that it started hold a pipe, which ends with the last of them.
func TestPgbenchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	if !hasPgbench(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, w := openPgbenchOn(t, "SELECT 1;\n\\shell sleep 1000 > "+path+"\n", "", 1)
	ctx, end := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := runPgbench(ctx, t, w, time.Hour)
		result <- err
	}()
	pipe, err := os.Open(path) // waits until the shell has it open
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	cause := errors.New("enough")
	end(cause)
	if err := <-result; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if _, err := io.ReadAll(pipe); err != nil {
		t.Error(err)
	}
}

// A program that connects so slowly that nothing is left of a round of less than four seconds.
const slowPgbench = `#!/bin/sh
for arg; do
	case $arg in --time=*) seconds=${arg#--time=} ;; esac
done
test "$seconds" -ge 4 || { echo "number of transactions actually processed: 0"; exit; }
echo "0 1 1500 0 1 1" > log.1
echo "number of transactions actually processed: $seconds"
echo "tps = 1.0 (without initial connection time)"
`

func TestPgbenchGetsTimeToConnect(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pgbench")
	run := func(program string) (Sample, error) {
		if err := os.WriteFile(path, []byte(program), 0o700); err != nil {
			t.Fatal(err)
		}
		server, err := pgx.ParseConfig("postgres://user@127.0.0.1:1/database")
		if err != nil {
			t.Fatal(err)
		}
		return runPgbench(t.Context(), t, &pgbench{env: &Env{Clients: 1, Dir: t.TempDir()}, path: path, server: server}, time.Millisecond)
	}
	if s, err := run(slowPgbench); s.OK != 4 || s.Latency.P50 != 1.5 || err != nil {
		t.Errorf("got %+v, %v", s, err)
	}
	if s, err := run(strings.ReplaceAll(slowPgbench, "-ge 4", "-ge 1000")); !errors.Is(err, errNothingDone) {
		t.Errorf("got %+v, %v", s, err)
	}
}
