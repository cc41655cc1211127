package pglock_test

import (
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestAnInterruptedSweepKeepsNoKey: a sweep fails after it has made itself the holder of a key that
// was shared once. Others acquire the key at once, in both modes.
func TestAnInterruptedSweepKeepsNoKey(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	l, err := pglock.NewLeaseLocker(t.Context(), pool, pglock.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(t.Context()) }()
	exec := func(statement string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	acquire := func(opts ...dblock.Option) {
		t.Helper()
		lock, err := l.TryAcquire(t.Context(), "k", opts...)
		if err != nil {
			t.Fatalf("the key has no holder: %v", err)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$")
	for _, opts := range [][]dblock.Option{nil, {dblock.WithShared()}} {
		acquire(dblock.WithShared())
		exec("UPDATE dblock_lease SET changed_at = '2000-01-01'")
		exec("CREATE TRIGGER interrupted AFTER DELETE ON dblock_lease FOR EACH ROW EXECUTE FUNCTION refuse()")
		if n, err := l.Sweep(t.Context()); err == nil {
			t.Fatalf("the sweep was not interrupted: %d", n)
		}
		exec("DROP TRIGGER interrupted ON dblock_lease")
		acquire(opts...)
	}
}
