package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
)

// TestMain finds what is left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSmoke runs every peer for a moment on every kind of server that is found.
func TestSmoke(t *testing.T) {
	t.Parallel()
	kinds := devdb.Available(t.Context())
	if len(kinds) == 0 {
		t.Fatal(&devdb.NotFoundError{Kind: devdb.Postgres})
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			args := []string{"--engine", string(kind), "--json", "-c", "6", "--conns", "4"}
			args = append(args, "-T", "0.2", "--warmup", "0", "--rounds", "1", "--jobs", "300")
			var names []string
			for _, s := range peers() {
				if len(s.Engines) == 0 || slices.Contains(s.Engines, kind) {
					names = append(names, s.Name)
				}
			}
			var out, errs bytes.Buffer
			if code := run(t.Context(), append(args, names...), &out, &errs); code != 0 {
				t.Fatalf("exit %d: %s", code, errs.String())
			}
			checkResults(t, out.Bytes(), names)
		})
	}
}

// checkResults wants one round of each scenario, with work done.
func checkResults(t *testing.T, output []byte, names []string) {
	t.Helper()
	var results []struct {
		Scenario, Engine, Server string
		OK                       int64
	}
	if err := json.Unmarshal(output, &results); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for i, name := range names {
		if i >= len(results) || results[i].Scenario != name || results[i].OK <= 0 || results[i].Server == "" {
			t.Fatalf("result %d of %+v: want %s with something done", i, results, name)
		}
		if peer := path.Base(name); !strings.HasSuffix(results[i].Engine, lockServers[peer]) {
			t.Errorf("%s says that it ran on %s, not on %s", name, results[i].Engine, lockServers[peer])
		}
	}
}

// lockServers are the peers that lock beside the database, and where.
var lockServers = map[string]string{"redislock": "redis", "etcd": "etcd"}

// TestListNamesThemAll: dblock's own and the peers', whether their servers are there or not.
func TestListNamesThemAll(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--list"}, &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	for _, s := range scenarios() {
		if !strings.Contains(out.String(), "\n"+s.Name+" ") && !strings.HasPrefix(out.String(), s.Name+" ") {
			t.Errorf("%s is not listed", s.Name)
		}
	}
	if len(scenarios()) == len(peers()) {
		t.Error("dblock's own scenarios are missing")
	}
}

func TestWrongFlagsAreUsageErrors(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"lock/nosuch"}, {"--clients", "0", "lock/etcd"}, {"--nosuch"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != exitUsage || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%q: exit %d, stderr %q", args, code, errs.String())
		}
	}
}

// TestMissingServerSaysHowToGetIt: where a peer's server is not to be had, its scenarios can't be
// opened, and say why.
func TestMissingServerSaysHowToGetIt(t *testing.T) {
	for name, variable := range map[string]string{"lock/redislock": "DBLOCK_REDIS_SERVER", "lock/etcd": "DBLOCK_ETCD"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("DBLOCK_REDIS_URL", "")
			t.Setenv("DBLOCK_ETCD_URL", "")
			t.Setenv(variable, t.TempDir()+"/nosuch")
			_, err := find(name).Open(t.Context(), &bench.Env{Conns: 1})
			if err == nil || !strings.Contains(err.Error(), variable) {
				t.Errorf("no word of %s: %v", variable, err)
			}
		})
	}
}

func find(name string) bench.Scenario {
	all := peers()
	return all[slices.IndexFunc(all, func(s bench.Scenario) bool { return s.Name == name })]
}

// TestCloseEndsTheServer asks the kernel: what is only forgotten may be swept away by a later
// start, and look as if it had been ended.
func TestCloseEndsTheServer(t *testing.T) {
	t.Parallel()
	env := &bench.Env{Clients: 2}
	redis, err := openRedislock(t.Context(), env, 2)
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := openEtcd(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for locks, pid := range map[describedLocker]int{redis: redis.server.pid, etcd: etcd.server.pid} {
		unlock, err := locks.Lock(t.Context(), "key")
		if err == nil {
			err = unlock(t.Context())
		}
		if err := errors.Join(err, locks.Close()); err != nil {
			t.Errorf("%s: %v", locks.Engine(), err)
		}
		if pid == 0 { // it was there before
			continue
		}
		server, err := os.FindProcess(pid)
		if err == nil {
			err = server.Signal(syscall.Signal(0))
		}
		if !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s still runs as process %d: %v", locks.Engine(), pid, err)
		}
	}
}

// TestWrongLockIsCaught is the control of every hotlock scenario: a Locker that locks nothing must
// be found out, and one that locks must not.
func TestWrongLockIsCaught(t *testing.T) {
	t.Parallel()
	if err := hammer(t, unlocked{}, 10*time.Second); err == nil {
		t.Error("callers who lock nothing were not caught")
	}
	if err := hammer(t, new(mutexed), 50*time.Millisecond); err != nil {
		t.Errorf("callers with a mutex: %v", err)
	}
}

// hammer has callers of the hotlock scenario work until one fails or the time is up.
func hammer(t *testing.T, locker bench.Locker, limit time.Duration) error {
	hot := bench.LockScenarios("control", "", nil, nil,
		func(context.Context, *bench.Env) (bench.Locker, error) { return locker, nil })[1]
	load, err := hot.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = load.Close() }()
	round, err := load.Round(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	failures := make(chan error, 8)
	var callers sync.WaitGroup
	for id := range cap(failures) {
		op, err := round.Client(id)
		if err != nil {
			t.Fatal(err)
		}
		callers.Go(func() {
			for ctx.Err() == nil {
				if _, err := op(ctx); err != nil {
					failures <- err
					cancel()
				}
			}
		})
	}
	callers.Wait()
	close(failures)
	return <-failures
}

type unlocked struct{}

func (unlocked) Lock(context.Context, string) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}
func (unlocked) Close() error { return nil }

type mutexed struct{ sync.Mutex }

func (m *mutexed) Lock(context.Context, string) (func(context.Context) error, error) {
	m.Mutex.Lock()
	return func(context.Context) error { m.Unlock(); return nil }, nil
}
func (*mutexed) Close() error { return nil }
