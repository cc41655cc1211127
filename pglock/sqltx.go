package pglock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Tx is a transaction: a pgx.Tx, or what SQLTx makes of a *sql.Tx. A pool is none, as it has no
// Rollback: what is locked through it would be free again at once.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Rollback(ctx context.Context) error
}

// SQLTx lets the functions of this package take a transaction of database/sql, and so of GORM, ent
// or sqlx. The driver underneath must be pgx's (github.com/jackc/pgx/v5/stdlib): with another one
// they fail, and say so.
func SQLTx(tx *sql.Tx) Tx {
	if tx == nil {
		return nil // which they refuse
	}
	return sqlTx{tx}
}

type sqlTx struct{ tx *sql.Tx }

// Exec passes on an option that only pgx's driver takes for one.
func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	result, err := t.tx.ExecContext(ctx, query, withMode(args)...)
	if err != nil {
		return pgconn.CommandTag{}, ofDriver(ctx, err)
	}
	n, err := result.RowsAffected()
	return pgconn.NewCommandTag("SELECT " + strconv.FormatInt(n, 10)), err
}

// Query is for rows that are scanned: they have names and values, and nothing else that is pgx's.
func (t sqlTx) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	rows, err := t.tx.QueryContext(ctx, query, withMode(args)...)
	if err != nil {
		return nil, ofDriver(ctx, err)
	}
	return &sqlRows{rows: rows}, nil
}

func (t sqlTx) Rollback(context.Context) error { return t.tx.Rollback() }

// withMode puts the option first, if the caller has not.
func withMode(args []any) []any {
	if len(args) > 0 {
		if _, has := args[0].(pgx.QueryExecMode); has {
			return args
		}
	}
	return append([]any{pgx.QueryExecModeCacheDescribe}, args...)
}

// ofDriver names a closed connection, and a driver that took our option for an argument.
func ofDriver(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrBadConn) {
		return sqlerr.Unwritten(fmt.Errorf("the transaction's connection is closed: %w", err))
	}
	known := errors.As(err, new(*pgconn.PgError)) || errors.As(err, new(*postgres.UnusableError)) || notEncoded(err)
	if known || ctx.Err() != nil || errors.Is(err, sql.ErrTxDone) || postgres.IsBroken(err) {
		return err
	}
	return fmt.Errorf("%w: a *sql.Tx of another driver than pgx's stdlib: %w", dblock.ErrUnsupported, err)
}

// sqlRows are rows of database/sql as pgx's functions read them. pgx may add methods to its
// interface: those are there, and can't be called.
type sqlRows struct {
	pgx.Rows
	rows   *sql.Rows
	failed error
}

func (r *sqlRows) Next() bool { return r.rows.Next() }

func (r *sqlRows) Close() { r.failed = errors.Join(r.failed, r.rows.Close()) }

func (r *sqlRows) Err() error { return errors.Join(r.failed, r.rows.Err()) }

func (r *sqlRows) CommandTag() pgconn.CommandTag { return pgconn.CommandTag{} }

func (r *sqlRows) FieldDescriptions() []pgconn.FieldDescription {
	names, err := r.rows.Columns()
	if err != nil {
		r.failed = errors.Join(r.failed, err)
	}
	fields := make([]pgconn.FieldDescription, len(names))
	for i, name := range names {
		fields[i].Name = name
	}
	return fields
}

func (r *sqlRows) Scan(dest ...any) error {
	if len(dest) == 1 {
		if whole, ok := dest[0].(pgx.RowScanner); ok {
			return whole.ScanRow(r)
		}
	}
	err := r.rows.Scan(dest...)
	if err != nil {
		r.failed = errors.Join(r.failed, err)
	}
	return err
}

func (r *sqlRows) Values() ([]any, error) {
	values := make([]any, len(r.FieldDescriptions()))
	places := make([]any, len(values))
	for i := range values {
		places[i] = &values[i]
	}
	return values, r.Scan(places...)
}

func (r *sqlRows) RawValues() [][]byte { return nil }

func (r *sqlRows) Conn() *pgx.Conn { return nil }

func (r *sqlRows) TypeMap() *pgtype.Map { return pgtype.NewMap() }
