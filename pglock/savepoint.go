package pglock

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// batcher is a transaction of pgx's own.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// aroundSavepoint runs a query between others, whose rows are not read, and then looks at the
// table. What stands before it takes a round trip of its own: pgx may have the server parse the
// query first, which waits for a locked table. The rest takes one where tx can, and two or three
// through database/sql, which has no batches.
func aroundSavepoint(
	ctx context.Context, tx Tx, view *view, before, after []string, read func(pgx.Rows) error, query string, args []any,
) error {
	view.locked = true
	if len(before) > 0 {
		if _, err := tx.Exec(ctx, strings.Join(before, "; "), pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	if b, ok := tx.(batcher); ok {
		var batch pgx.Batch
		batch.Queue(query, args...).Query(read)
		batch.Queue(tableFacts, view.table, view.column).Query(view.read)
		for _, statement := range after {
			batch.Queue(statement)
		}
		return b.SendBatch(ctx, &batch).Close()
	}
	answer, err := tx.Query(ctx, query, args...)
	if err == nil {
		err = read(answer)
	}
	if err == nil {
		err = view.query(ctx, tx)
	}
	if err == nil && len(after) > 0 {
		_, err = tx.Exec(ctx, strings.Join(after, "; "), pgx.QueryExecModeSimpleProtocol)
	}
	return err
}

// describing has pgx ask the server for the types of a query's arguments. It is no batcher.
type describing struct{ Tx }

func (d describing) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	return d.Tx.Query(ctx, query, append([]any{pgx.QueryExecModeDescribeExec}, args...)...)
}

// forKeys returns tx as it sends keys of any type. In the modes exec and simple_protocol pgx knows
// the type of an argument by its Go type alone: there one more round trip asks for those of other
// keys.
func forKeys(tx Tx, keys any) Tx {
	switch keys.(type) {
	case []string, []int, []int16, []int32, []int64:
		return tx
	}
	if conn, ok := tx.(interface{ Conn() *pgx.Conn }); ok {
		switch conn.Conn().Config().DefaultQueryExecMode {
		case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
			return describing{tx}
		}
	}
	return tx
}
