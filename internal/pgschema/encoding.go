package pgschema

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/pgfault"
)

// CheckConn is pgfault.CheckClientEncoding for a connection. It takes no round trip.
func CheckConn(conn *pgx.Conn) error {
	return pgfault.CheckClientEncoding(conn.PgConn().ParameterStatus("client_encoding"))
}

// OnHost is On for sessions of the host's, which may have any client_encoding, and change it. It
// refuses a statement before it is sent, with the error of pgfault.CheckClientEncoding.
func OnHost(db pgdb.DBTX, name string) pgdb.DBTX { return On(onHost{db}, name) }

// onHost has pgx check its connection: a pool has none yet, and database/sql does not show its own.
type onHost struct{ pgdb.DBTX }

func (h onHost) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := h.DBTX.Exec(ctx, sql, checked(args)...)
	return tag, bare(err)
}

func (h onHost) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := h.DBTX.Query(ctx, sql, checked(args)...)
	return rows, bare(err)
}

func (h onHost) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return bareRow{h.DBTX.QueryRow(ctx, sql, checked(args)...)}
}

type bareRow struct{ pgx.Row }

func (r bareRow) Scan(dest ...any) error { return bare(r.Row.Scan(dest...)) }

// checked puts the check before the arguments of a statement.
func checked(args []any) []any { return append([]any{checkUTF8{}}, args...) }

// checkUTF8 is what pgx calls with the connection before it sends a statement.
type checkUTF8 struct{}

func (checkUTF8) RewriteQuery(_ context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	return sql, args, CheckConn(conn)
}

// bare takes away what pgx says around a refusal.
func bare(err error) error {
	var refused *pgfault.UnusableError
	if errors.As(err, &refused) {
		return refused
	}
	return err
}
