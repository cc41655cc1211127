package pginventory_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// TestConnectionsAsAHostLeftThem sells on connections of the pool on which the host has set another
// encoding, has begun a transaction or has dropped prepared statements. Another pool reads the
// table.
func TestConnectionsAsAHostLeftThem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statement string
		set       func(*pgxpool.Config, func(context.Context, *pgx.Conn) error)
		want      error
	}{
		"another encoding": {statement: "SET client_encoding = 'LATIN1'"},
		"no statements":    {statement: "DISCARD ALL"},
		"a transaction": {statement: "BEGIN", set: func(cfg *pgxpool.Config, begin func(context.Context, *pgx.Conn) error) {
			cfg.AfterRelease = func(conn *pgx.Conn) bool { return begin(context.Background(), conn) == nil }
		}},
		"a transaction each time": {statement: "BEGIN", want: dblock.ErrUnsupported, set: func(cfg *pgxpool.Config, begin func(context.Context, *pgx.Conn) error) {
			cfg.AfterConnect = begin
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := testdb.MigratedPostgres(t)
			cfg := plain.Config()
			cfg.MaxConns = 2
			leave := func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, c.statement)
				return err
			}
			if c.set != nil {
				c.set(cfg, leave)
			}
			host, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(host.Close)
			store, err := pginventory.New(t.Context(), host, inventory.Options{})
			require.NoError(t, err)
			other, err := pginventory.New(t.Context(), plain, inventory.Options{})
			require.NoError(t, err)
			_, err = other.Restock(t.Context(), inventory.Adjustment{ID: "first", SKU: "café", Delta: 100})
			require.NoError(t, err)
			for i := range 10 {
				r := inventory.Request{Key: fmt.Sprint("é-", i), SKU: "café", Qty: 1, Buyer: "ä"}
				_, err := other.Reserve(t.Context(), r)
				require.NoError(t, err)
				if c.set == nil {
					for _, conn := range host.AcquireAllIdle(t.Context()) {
						assert.NoError(t, leave(t.Context(), conn.Conn()))
						conn.Release()
					}
				}
				got, err := store.Reserve(t.Context(), r)
				assert.ErrorIs(t, err, c.want)
				assert.Equal(t, c.want == nil, got.Replayed)
				r.Key += "b"
				_, err = store.Reserve(t.Context(), r)
				assert.ErrorIs(t, err, c.want)
			}
			want := 20
			if c.want != nil {
				want = 10
			}
			var n int
			require.NoError(t, plain.QueryRow(t.Context(), "SELECT count(*) FROM dblock_reservation WHERE buyer = 'ä' AND sku = 'café'").Scan(&n))
			assert.Equal(t, want, n)
			require.NoError(t, plain.QueryRow(t.Context(), "SELECT count(*) FROM dblock_reservation").Scan(&n))
			assert.Equal(t, want, n)
		})
	}
}
