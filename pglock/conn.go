package pglock

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/schema"
)

// sql puts the tables of a statement into the schema that the host chose.
func (e *engine) sql(query string) string {
	return schema.Qualify(query, e.schema, schema.QuotePostgres)
}

// on returns what the generated queries run on.
func (e *engine) on(db pgdb.DBTX) pgdb.DBTX {
	if e.schema == "" {
		return db
	}
	return qualified{db, e}
}

// qualified sends every statement with its tables qualified.
type qualified struct {
	pgdb.DBTX
	e *engine
}

func (q qualified) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return q.DBTX.Exec(ctx, q.e.sql(sql), args...)
}

func (q qualified) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return q.DBTX.Query(ctx, q.e.sql(sql), args...)
}

func (q qualified) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return q.DBTX.QueryRow(ctx, q.e.sql(sql), args...)
}
