package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestASilentNetworkHoldsNoTransaction has the network go silent at the end of a transaction. Its
// end returns, and the pool gets its connection back. database/sql keeps it.
func TestASilentNetworkHoldsNoTransaction(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		suite.Each(t, map[string]struct {
			at  string // the statement at which the network goes silent
			end func(ctx context.Context, cancel func(), tx *mysql.Tx)
		}{
			"its context ends": {at: "ROLLBACK", end: func(_ context.Context, cancel func(), tx *mysql.Tx) {
				cancel()
				tx.Return(func() {})
			}},
			"it is rolled back": {at: "ROLLBACK", end: func(_ context.Context, _ func(), tx *mysql.Tx) {
				tx.Return(func() {})
			}},
			"it is committed": {at: "COMMIT", end: func(ctx context.Context, _ func(), tx *mysql.Tx) {
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				assert.Error(t, tx.Commit(ctx))
				tx.Return(func() {})
			}},
			"it is checked and committed": {at: "COMMIT", end: func(ctx context.Context, _ func(), tx *mysql.Tx) {
				ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // the check is answered
				defer cancel()
				checked, err := tx.CheckAndCommit(ctx)
				assert.True(t, checked)
				assert.Error(t, err)
				tx.Return(func() {})
			}},
			"it is checked": {at: "RELEASE", end: func(ctx context.Context, _ func(), tx *mysql.Tx) {
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				checked, err := tx.CheckAndCommit(ctx)
				assert.False(t, checked)
				assert.Error(t, err)
				tx.Return(func() {})
			}},
		}, func(t *testing.T, c struct {
			at  string
			end func(ctx context.Context, cancel func(), tx *mysql.Tx)
		}) {
			db, dialer := dialed(t, kind)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tx, err := mysql.Begin(ctx, db, mysql.ReadCommitted, nil)
			require.NoError(t, err)
			dialer.ArmAt(c.at, 1, faultconn.Stall)
			suite.Wait(t, returns(func() { c.end(t.Context(), cancel, tx) }), "its end")
			suite.Until(t, "the connection is back", func() bool { return db.Stats().InUse == 0 })
		})
		t.Run(string(kind)+"/database/sql keeps it", func(t *testing.T) {
			t.Parallel()
			db, dialer := dialed(t, kind)
			ctx, cancel := context.WithCancel(t.Context())
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			dialer.ArmAt("ROLLBACK", 1, faultconn.Stall)
			cancel()
			suite.Until(t, "ROLLBACK is sent", func() bool { return dialer.Watched() > 0 })
			_ = tx.Rollback()
			time.Sleep(time.Second)
			assert.Equal(t, 1, db.Stats().InUse)
		})
	}
}

// dialed returns a pool of one connection, and what dials it.
func dialed(t *testing.T, kind devdb.Kind) (*sql.DB, *faultconn.Dialer) {
	t.Helper()
	dialer := &faultconn.Dialer{Watch: "ROLLBACK"}
	db, err := suite.ConnectOn(kind, testdb.DSN(t, kind), dialer)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { suite.ClosePool(dialer, func() { _ = db.Close() }) })
	return db, dialer
}

// returns reports that f has returned.
func returns(f func()) <-chan bool {
	done := make(chan bool, 1)
	go func() {
		f()
		done <- true
	}()
	return done
}
