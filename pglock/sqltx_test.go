package pglock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// breaking is a connection that ends at its next read.
type breaking struct {
	net.Conn
	broken *atomic.Bool
}

func (c breaking) Read(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

// TestASQLTxWhoseConnectionBreaks: the server is unavailable then, and the driver is pgx's all the
// same. Where rows are open, it is pgx's, too.
func TestASQLTxWhoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(testdb.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	var broken atomic.Bool
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return breaking{conn, &broken}, err
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	f := dblock.Fence{Key: "k", Token: 1}
	for name, call := range map[string]func(context.Context, pglock.Tx) error{
		"Guard":        func(ctx context.Context, tx pglock.Tx) error { return pglock.Guards{}.Guard(ctx, tx, f) },
		"AdvanceFence": func(ctx context.Context, tx pglock.Tx) error { return pglock.Guards{}.AdvanceFence(ctx, tx, f, "r") },
		"LockTx":       func(ctx context.Context, tx pglock.Tx) error { return pglock.LockTx(ctx, tx, dblock.NoWait(), 1) },
		"LockRow": func(ctx context.Context, tx pglock.Tx) error {
			return pglock.LockRow(ctx, tx, "seat", "id", 1, dblock.RowLock{})
		},
	} {
		broken.Store(false)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := tx.QueryContext(t.Context(), "SELECT generate_series(1, 100000)")
		if err != nil {
			t.Fatal(err)
		}
		if err := call(t.Context(), pglock.SQLTx(tx)); err == nil || errors.Is(err, dblock.ErrUnsupported) {
			t.Errorf("%s, rows are open: %v", name, err)
		}
		if err := errors.Join(rows.Close(), rows.Err()); err != nil {
			t.Fatal(err)
		}
		broken.Store(true)
		for _, how := range []string{"breaks", "is closed"} {
			err := call(t.Context(), pglock.SQLTx(tx))
			raw := name == "Guard" || name == "AdvanceFence" // they return pgx's errors
			if err == nil || !raw && !errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrUnsupported) {
				t.Errorf("%s, the connection %s: %v", name, how, err)
			}
		}
		_ = tx.Rollback()
	}
}
