package pglock_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestAStuckGuardGivesWay: a holder stops while the server sends it a result, or waits for what it
// copies in. No timeout of the server ends such a transaction, and its process is dead to the
// others: they get the key.
func TestAStuckGuardGivesWay(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(context.Context, *pgx.Conn){
		"reading": func(ctx context.Context, conn *pgx.Conn) {
			_, _ = conn.Query(ctx, "SELECT pg_catalog.repeat('x', 1000000) FROM pg_catalog.generate_series(1, 200)")
		},
		"copying": func(ctx context.Context, conn *pgx.Conn) {
			never, _ := io.Pipe()
			go func() {
				<-ctx.Done()
				_ = never.Close()
			}()
			go func() { _, _ = conn.PgConn().CopyFrom(ctx, never, "COPY copied FROM STDIN") }()
		},
	} {
		for mode, opts := range map[string][]dblock.Option{
			"exclusive": nil, "shared": {dblock.WithShared()}, "permits": {dblock.WithPermits(1, 1)},
		} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				stuckGuard(t, stop, opts)
			})
		}
	}
}

func stuckGuard(t *testing.T, stop func(context.Context, *pgx.Conn), opts []dblock.Option) {
	pool := testdb.MigratedPostgres(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE copied (n int)"); err != nil {
		t.Fatal(err)
	}
	var locks [2]*pglock.LeaseLocker
	for i := range locks {
		l, err := pglock.NewLeaseLocker(t.Context(), pool, pglock.LeaseOptions{TTL: time.Minute + time.Duration(i), Poll: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close(context.Background()) }()
		locks[i] = l
	}
	lock, err := locks[0].Acquire(t.Context(), "k", opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release(context.Background()) }()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		_ = conn.PgConn().Conn().Close()
	}()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fence, _ := lock.Fence()
	if err := (pglock.Guards{}).Guard(t.Context(), tx, fence); err != nil {
		t.Fatal(err)
	}
	stop(ctx, conn)
	waits := false
	for end := time.Now().Add(time.Minute); !waits && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		query := "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND wait_event_type = 'Client')"
		if err := pool.QueryRow(t.Context(), query, conn.PgConn().PID()).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	if !waits {
		t.Fatal("the server does not wait for the client: this shows nothing")
	}
	if _, err := pool.Exec(t.Context(), "DELETE FROM dblock_member"); err != nil { // its process is found dead
		t.Fatal(err)
	}
	soon, end := context.WithTimeout(t.Context(), 40*time.Second)
	defer end()
	if len(opts) > 0 && lock.Keys()[0] == "k" && fence.Mode == dblock.ModeShared {
		opts = nil // a writer has to wait for the reader
	}
	next, err := locks[1].Acquire(soon, "k", opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAHeartbeatAfterAStepBack: the server's clock steps back by half an hour, which is as if the
// member's end moved forward. A heartbeat is worth a TTL from now, and no more.
func TestAHeartbeatAfterAStepBack(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	pool := testdb.MigratedPostgres(t)
	l, err := pglock.NewLeaseLocker(t.Context(), pool, pglock.LeaseOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	lock, err := l.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE dblock_member SET expires_at = expires_at + interval '30 minutes'"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for short := false; !short; time.Sleep(ttl / 60) {
		const query = "SELECT expires_at <= clock_timestamp() + $1::float8 * interval '1 second' FROM dblock_member"
		if err := pool.QueryRow(ctx, query, ttl.Seconds()).Scan(&short); err != nil {
			t.Fatal(err)
		}
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
