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

// between runs a query between others, whose rows nobody reads, and after a pending look: in one round trip where tx can, in three
// through database/sql, which has no batches.
func between(
	ctx context.Context, tx Tx, view *view, before, after []string, read func(pgx.Rows) error, query string, args []any,
) error {
	if b, ok := tx.(batcher); ok && (view.pending || len(before) > 0) {
		return inBatch(ctx, b, view, before, after, read, query, args)
	}
	if len(before) == 0 {
		answer, err := tx.Query(ctx, query, args...)
		if err == nil {
			err = read(answer)
		}
		return err
	}
	if _, err := tx.Exec(ctx, strings.Join(before, "; "), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	answer, err := tx.Query(ctx, query, args...)
	if err == nil {
		err = read(answer)
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, strings.Join(after, "; "), pgx.QueryExecModeSimpleProtocol)
	return err
}

func inBatch(
	ctx context.Context, tx batcher, view *view, before, after []string, read func(pgx.Rows) error, query string, args []any,
) (err error) {
	var batch pgx.Batch
	if view.pending {
		batch.Queue(tableFacts, view.args()...)
	}
	for _, statement := range before {
		batch.Queue(statement)
	}
	batch.Queue(query, args...)
	for _, statement := range after {
		batch.Queue(statement)
	}
	results := tx.SendBatch(ctx, &batch)
	defer func() {
		if closed := results.Close(); err == nil { // else it says the same again
			err = closed
		}
	}()
	if view.pending {
		answer, err := results.Query()
		if err == nil {
			err = view.read(answer)
		}
		if err != nil {
			return err
		}
	}
	for range before {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	answer, err := results.Query()
	if err == nil {
		err = read(answer)
	}
	if err != nil {
		return err
	}
	for range after {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	return nil
}
