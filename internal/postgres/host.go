package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// CheckPath is an argument that makes pgx refuse a statement before it is sent, with the error of
// CheckSearchPath. A connection is asked for its search_path once. From Postgres 18 on the
// server reports changes, and none is asked.
type CheckPath struct{}

// RewriteQuery is what pgx calls with the connection before it sends a statement.
func (CheckPath) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	return sql, args, checkPath(ctx, conn.PgConn())
}

// pathKey is where a connection keeps that its path was checked.
const pathKey = "dblock.search_path"

func checkPath(ctx context.Context, conn *pgconn.PgConn) error {
	isReported, isKnown := conn.ParameterStatus("search_path") != "", conn.CustomData()[pathKey] != nil
	if isKnown && !isReported || conn.TxStatus() == 'E' {
		return nil
	}
	if err := CheckConnPath(ctx, conn); err != nil {
		return sqlerr.Unwritten(err)
	}
	conn.CustomData()[pathKey] = true
	return nil
}

// DB is a pool, a connection or a transaction, by way of database/sql too.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// OnHost is On for sessions of the host's, which may have any client_encoding and search_path, and
// change them. It refuses a statement before it is sent, with the errors of
// CheckClientEncoding and CheckPath.
func (s *Schema) OnHost(db DB) pgdb.DBTX { return s.On(onHost{db}) }

// onHost has pgx check its connection: a pool has none yet, and database/sql does not show its own.
type onHost struct{ db DB }

func (h onHost) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := h.db.Exec(ctx, sql, checked(args)...)
	return tag, bare(err)
}

func (h onHost) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := h.db.Query(ctx, sql, checked(args)...)
	return rows, bare(err)
}

func (h onHost) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := h.Query(ctx, sql, args...)
	return oneRow{rows, err}
}

// oneRow is the one row of a query.
type oneRow struct {
	rows pgx.Rows
	err  error
}

// Scan returns an error that came after the row, too.
func (r oneRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		return cmp.Or(r.rows.Err(), pgx.ErrNoRows)
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// checked puts the check before the arguments of a statement.
func checked(args []any) []any { return append([]any{checkHost{}}, args...) }

// checkHost is CheckPath, and checks the client_encoding.
type checkHost struct{}

func (checkHost) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	if err := CheckClientEncoding(conn.PgConn().ParameterStatus("client_encoding")); err != nil {
		return sql, args, err
	}
	return sql, args, checkPath(ctx, conn.PgConn())
}

// bare takes away what pgx says around a refusal.
func bare(err error) error {
	var refused *UnusableError
	if errors.As(err, &refused) {
		return refused
	}
	return err
}
