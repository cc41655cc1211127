package bench

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// limitEnv is what the limits are opened with: more callers than connections.
func limitEnv(t *testing.T, kind devdb.Kind) *Env {
	t.Helper()
	env := &Env{
		Kind: kind, Server: testdb.Server(t, kind), DSN: testdb.DSN(t, kind),
		Clients: 6, Conns: 2, Dir: t.TempDir(),
	}
	if err := migrateLimits(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	return env
}

func migrateLimits(ctx context.Context, env *Env) error {
	if env.Kind == devdb.Postgres {
		pool, err := pgxpool.New(ctx, env.DSN)
		if err != nil {
			return err
		}
		defer pool.Close()
		_, err = migrations.Up(ctx, pool, migrations.Options{})
		return err
	}
	db, err := sql.Open("mysql", env.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = migrations.Up(ctx, db, migrations.Options{})
	return err
}

func TestLimitsCount(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for _, s := range limits() {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					limitCounts(t, limitEnv(t, kind), s)
				})
			}
		})
	}
}

func limitCounts(t *testing.T, env *Env, s Scenario) {
	w, err := s.Open(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, w)
	const ops = 20
	want := int64(s.clients(env.Clients) * ops)
	for n := range 3 {
		round, err := w.Round(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if units := callAll(t, round, s.clients(env.Clients), ops); units != want {
			t.Errorf("round %d: %d units, want %d", n, units, want)
		}
		if round.Check == nil {
			continue
		}
		if err := round.Check(t.Context(), want); err != nil {
			t.Errorf("round %d: %v", n, err)
		}
		if err := round.Check(t.Context(), want+1); err == nil {
			t.Errorf("round %d: a unit that is not there went unnoticed", n)
		}
	}
}

// callAll has every caller do so many operations, and returns the units.
func callAll(t *testing.T, r Round, clients, ops int) int64 {
	t.Helper()
	var units atomic.Int64
	var callers sync.WaitGroup
	for id := range clients {
		op, err := r.Client(id)
		if err != nil {
			t.Fatal(err)
		}
		callers.Go(func() {
			for range ops {
				n, err := op(t.Context())
				if err != nil {
					t.Errorf("caller %d: %v", id, err)
					return
				}
				units.Add(int64(n))
			}
		})
	}
	callers.Wait()
	return units.Load()
}

func closing(t *testing.T, w Workload) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestLimitsHaveNamesAndLines(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, s := range limits() {
		if !strings.HasPrefix(s.Name, "limit/") || names[s.Name] || s.About == "" || strings.Contains(s.About, "\n") {
			t.Errorf("%q: %q", s.Name, s.About)
		}
		names[s.Name] = true
	}
}

func TestFlushTakesTheServersDiskAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		server := testdb.Server(t, kind)
		for _, env := range []*Env{{Server: server, Dir: t.TempDir()}, {Dir: t.TempDir()}} {
			want := env.Dir
			if env.Server != nil && server.Dir() != "" {
				want = server.Dir()
			}
			f, err := newFlusher(env)
			if err != nil {
				t.Fatal(err)
			}
			path := f.file.Name()
			if st, err := os.Stat(path); err != nil || filepath.Dir(path) != want || st.Size() != flushFile {
				t.Errorf("%s of %v bytes, %v: want %d bytes in %s", path, st.Size(), err, flushFile, want)
			}
			if err := f.remove(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", path, err)
			}
			if _, err := f.flush(t.Context()); err == nil {
				t.Error("a flush of no file succeeded")
			}
		}
	}
	if _, err := newFlusher(&Env{Dir: filepath.Join(t.TempDir(), "absent")}); err == nil {
		t.Error("a folder that is not there went unnoticed")
	}
}
