package pglock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/pglock"
)

// TestAnotherDriversTxIsRefused: a *sql.Tx does not say whose it is, and another driver takes our
// option for one more parameter.
func TestAnotherDriversTxIsRefused(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(otherDriver{})
	defer db.Close()
	f := dblock.Fence{Key: "k", Token: 1}
	for name, call := range map[string]func(context.Context, pglock.Tx) error{
		"Guard":        func(ctx context.Context, tx pglock.Tx) error { return pglock.Guards{}.Guard(ctx, tx, f) },
		"AdvanceFence": func(ctx context.Context, tx pglock.Tx) error { return pglock.Guards{}.AdvanceFence(ctx, tx, f, "r") },
		"LockTx":       func(ctx context.Context, tx pglock.Tx) error { return pglock.LockTx(ctx, tx, dblock.NoWait(), 1) },
		"LockRow": func(ctx context.Context, tx pglock.Tx) error {
			return pglock.LockRow(ctx, tx, "seat", "id", 1, dblock.RowLock{})
		},
		"CheckFence": func(ctx context.Context, tx pglock.Tx) error { return pglock.Guards{}.CheckFence(ctx, tx, f, "r") },
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = call(t.Context(), pglock.SQLTx(tx))
		if !errors.Is(err, dblock.ErrUnsupported) || errors.Is(err, dblock.ErrFenced) || !strings.Contains(err.Error(), "pgx") {
			t.Errorf("%s: %v", name, err)
		}
		_ = tx.Rollback()
	}
}

// otherDriver counts parameters, as all drivers for Postgres do.
type otherDriver struct{}

func (d otherDriver) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d otherDriver) Driver() driver.Driver                        { return nil }
func (d otherDriver) Prepare(query string) (driver.Stmt, error) {
	return counted(strings.Count(query, "$")), nil
}
func (d otherDriver) Close() error              { return nil }
func (d otherDriver) Begin() (driver.Tx, error) { return d, nil }
func (d otherDriver) Commit() error             { return nil }
func (d otherDriver) Rollback() error           { return nil }

type counted int

func (counted) Close() error                                 { return nil }
func (n counted) NumInput() int                              { return int(n) }
func (n counted) Exec([]driver.Value) (driver.Result, error) { return driver.RowsAffected(1), nil }
func (n counted) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

// TestAFenceOfNoModeIsFenced: a Fence is data that services send along. Nothing is sent.
func TestAFenceOfNoModeIsFenced(t *testing.T) {
	t.Parallel()
	if err := (pglock.Guards{}).Guard(t.Context(), nil, dblock.Fence{Key: "k", Token: 1, Mode: 9}); !errors.Is(err, dblock.ErrFenced) {
		t.Error(err)
	}
}
