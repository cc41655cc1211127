package pglock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// logged is a Log that a test reads.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// TestReleaseWithoutNotifications: the server refuses to notify waiters. Locks of each kind are
// released to them, and the Log says once that they have to poll.
func TestReleaseWithoutNotifications(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	if _, err := pool.Exec(t.Context(), "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_notify(text, text) FROM PUBLIC"); err != nil {
		t.Fatal(err)
	}
	service := asService(t, pool)
	for name, c := range map[string]struct {
		fair bool
		keys []string
		opts []dblock.Option
	}{
		"exclusive": {keys: []string{"k"}}, "fair": {fair: true, keys: []string{"k"}}, "set": {keys: []string{"a", "b"}},
		"shared": {keys: []string{"k"}, opts: []dblock.Option{dblock.WithShared()}}, "permits": {keys: []string{"k"}, opts: []dblock.Option{dblock.WithPermits(1, 1)}},
	} {
		var keys []string
		for _, key := range c.keys {
			keys = append(keys, name+key)
		}
		t.Run(name, func(t *testing.T) { releaseUnnotified(t, service, c.fair, keys, c.opts) })
	}
}

func releaseUnnotified(t *testing.T, pool *pgxpool.Pool, fair bool, keys []string, opts []dblock.Option) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var log logged
	var locks [2]*pglock.LeaseLocker
	for i := range locks { // of two TTLs, they share nothing
		l, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{
			TTL: time.Minute + time.Duration(i), Fair: fair, Poll: 50 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close(context.Background()) }()
		locks[i] = l
	}
	acquire := func(l *pglock.LeaseLocker, opts ...dblock.Option) (*dblock.Lock, error) {
		if len(keys) > 1 {
			return l.AcquireAll(ctx, keys, opts...)
		}
		return l.Acquire(ctx, keys[0], opts...)
	}
	for range 3 {
		held, err := acquire(locks[0], opts...)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			waiter := opts
			if held.Fences()[0].Mode == dblock.ModeShared {
				waiter = nil
			}
			lock, err := acquire(locks[1], waiter...)
			if err == nil {
				err = lock.Release(ctx)
			}
			got <- err
		}()
		for waits := false; !waits; {
			const query = "SELECT EXISTS (SELECT 1 FROM dblock_lease_waiter WHERE lease_key = $1) OR EXISTS (SELECT 1 FROM dblock_ticket WHERE lease_key = $1)"
			if err := pool.QueryRow(ctx, query, keys[0]).Scan(&waits); err != nil {
				t.Fatal(err)
			}
		}
		if err := held.Release(ctx); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	}
	if held := keys[0]; len(opts) > 0 && strings.HasPrefix(held, "permits") {
		if err := locks[0].SetPermits(ctx, held, 2); err != nil {
			t.Error(err)
		}
	}
	if n := log.count("refuses notifications"); n < 1 || n > 2 {
		t.Errorf("the Log says %d times that nobody is notified", n)
	}
}

// asService returns a pool of a role without the rights of a superuser.
func asService(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	role := cfg.ConnConfig.Database + "_quiet"
	for _, statement := range []string{
		"CREATE ROLE %s LOGIN PASSWORD 'service'", "GRANT USAGE ON SCHEMA public TO %s", "GRANT ALL ON ALL TABLES IN SCHEMA public TO %s",
		"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO %s",
	} {
		if _, err := pool.Exec(t.Context(), fmt.Sprintf(statement, role)); err != nil {
			t.Fatal(err)
		}
	}
	cfg.ConnConfig.User, cfg.ConnConfig.Password = role, "service"
	cfg.ConnConfig.RuntimeParams["standard_conforming_strings"] = "off" // pgx then refuses to send arguments as text
	service, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		service.Close()
		for _, statement := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := pool.Exec(context.Background(), statement); err != nil {
				t.Error(err)
			}
		}
	})
	return service
}
