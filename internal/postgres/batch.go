package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// parsedKey is where a connection keeps the texts that SendTx has sent on it.
const parsedKey = "dblock.parsed"

// SendTx sends a batch in a transaction that the statements of begin begin. It is one round trip,
// or two if some text of the batch is new to the connection. The server parses such a text, and
// waits for locked tables meanwhile. So the transaction begins before, and bounds the wait.
func SendTx(ctx context.Context, conn *pgx.Conn, begin []string, batch *pgx.Batch) error {
	data := conn.PgConn().CustomData()
	parsed, _ := data[parsedKey].(map[string]bool)
	if parsed == nil {
		parsed = make(map[string]bool)
		data[parsedKey] = parsed
	}
	texts := make([]string, len(batch.QueuedQueries))
	for i, q := range batch.QueuedQueries {
		texts[i] = q.SQL
	}
	if slices.ContainsFunc(texts, func(text string) bool { return !parsed[text] }) {
		if _, err := conn.Exec(ctx, strings.Join(begin, "; ")); err != nil {
			return err
		}
	} else {
		var first pgx.Batch
		for _, text := range begin {
			first.Queue(text)
		}
		batch.QueuedQueries = append(first.QueuedQueries, batch.QueuedQueries...)
	}
	err := conn.SendBatch(ctx, batch).Close()
	for _, text := range texts { // after an error, pgx has all of them parsed again
		parsed[text] = err == nil
	}
	return err
}
