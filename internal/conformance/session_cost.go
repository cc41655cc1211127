package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
)

// OpenSessions makes session locks in the database of dsn, over connections of the given dialer's.
type OpenSessions func(ctx context.Context, dsn string, dialer *faultconn.Dialer, idle time.Duration) (dblock.Locker, func(), error)

// SessionsCostFewRoundTrips counts what calls send: one statement to take a lock, to be refused one, and to give one back;
// none where the process shares it already, or hands it over.
func SessionsCostFewRoundTrips(t *testing.T, kind devdb.Kind, open OpenSessions) {
	var dialer, others faultconn.Dialer
	dsn := testdb.DSN(t, kind)
	l := opened(t, open, dsn, &dialer)
	other := opened(t, open, dsn, &others)
	for range 2 { // statements are prepared
		release(t, acquire(t, l, "k"))
		release(t, acquire(t, other, "k"))
	}
	least, trips := leastTrips(&dialer)
	for range 5 { // something may go on beside it, once or twice
		var lock, second *dblock.Lock
		trips("take", func() { lock = acquire(t, l, "k") })
		trips("give back", func() { release(t, lock) })

		theirs := acquire(t, other, "k")
		trips("refused", func() { _, _ = l.TryAcquire(t.Context(), "k") })
		release(t, theirs)

		lock = acquire(t, l, "k")
		trips("refused here", func() { _, _ = l.TryAcquire(t.Context(), "k") })
		release(t, lock)
		if !l.Caps().Shared {
			continue
		}
		trips("read", func() { lock = acquire(t, l, "k", dblock.WithShared()) })
		trips("read beside", func() { second = acquire(t, l, "k", dblock.WithShared()) })
		trips("go before the last", func() { release(t, lock) })
		trips("go", func() { release(t, second) })
	}
	want := map[string]int{"take": 1, "give back": 1, "refused": 1, "refused here": 0}
	if l.Caps().Shared {
		want["read"], want["read beside"], want["go before the last"], want["go"] = 1, 0, 0, 1
	}
	if diff := cmp.Diff(want, least); diff != "" {
		t.Errorf("round trips (- wanted, + made):\n%s", diff)
	}
}

func opened(t *testing.T, open OpenSessions, dsn string, dialer *faultconn.Dialer) dblock.Locker {
	t.Helper()
	l, closePool, err := open(t.Context(), dsn, dialer, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
		closePool()
	})
	return l
}
