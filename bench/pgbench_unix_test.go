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

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		_, err := runScript(ctx, t, w, time.Hour)
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
	run := func(text string) (Sample, error) {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		p := &pgbench{program: &program{env: &Env{Clients: 1, Dir: t.TempDir()}, path: path}}
		return runScript(t.Context(), t, p, time.Millisecond)
	}
	if s, err := run(slowPgbench); s.OK != 4 || s.Latency.P50 != 1.5 || err != nil {
		t.Errorf("got %+v, %v", s, err)
	}
	if s, err := run(strings.ReplaceAll(slowPgbench, "-ge 4", "-ge 1000")); !errors.Is(err, errNothingDone) {
		t.Errorf("got %+v, %v", s, err)
	}
}

// A program that writes what sysbench 1.0.20 writes, after it has looked at its options.
const someSysbench = `#!/bin/sh
test "$*" = "--config-file=options.cnf script.lua run" || { echo "FATAL: unknown arguments: $*"; exit 1; }
grep -q '^mysql-password=secret$' options.cnf || { echo "FATAL: no password in options.cnf"; exit 1; }
grep -q '^rows=10$' options.cnf || { echo "FATAL: script.lua:3: no rows"; exit 1; }
cat <<END
SQL statistics:
    queries performed:
        total:                           410
    transactions:                        100    (49.90 per sec.)
    ignored errors:                      5      (2.49 per sec.)
General statistics:
    total time:                          2.0040s
    total number of events:              100
Latency (ms):
         min:                                    1.21
         avg:                                   20.02
         max:                                  120.50
         99th percentile:                       61.08
         sum:                                 2002.00
END
`

func TestSysbenchIsMeasured(t *testing.T) {
	t.Parallel()
	f := writeScript(t, "orders.lua", "function event() end", "")
	path := filepath.Join(t.TempDir(), "sysbench")
	require.NoError(t, os.WriteFile(path, []byte(someSysbench), 0o700))
	config, err := mysql.ParseDSN("user:secret@tcp(127.0.0.1:1)/database")
	require.NoError(t, err)
	s := &sysbench{program: &program{scriptFlags: f, env: &Env{Clients: 1, Dir: t.TempDir()}, path: path}, config: config}
	_, err = runScript(t.Context(), t, s, time.Second)
	assert.ErrorContains(t, err, f.file+":3: no rows")
	s.defined = map[string]string{"rows": "10"}
	sample, err := runScript(t.Context(), t, s, time.Second)
	require.NoError(t, err)
	assert.Equal(t, Sample{
		OK: 100, Failed: map[string]int64{"ignored_error": 5}, Elapsed: 2004 * time.Millisecond,
		Latency: Latency{Mean: 20.02, P99: 61.08, Max: 120.5},
	}, sample)
	_, err = readSysbench("Latency (ms):\n")
	assert.ErrorIs(t, err, errNoEvents)
}
