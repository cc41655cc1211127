package mysqloptimistic

import (
	"context"
	"database/sql"
)

// DB is a *sql.DB, a *sql.Conn or a *sql.Tx: what sqlc calls DBTX, without its PrepareContext.
type DB interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}
