package pgoptimistic

import (
	"context"

	"github.com/dblock-go/dblock/optimistic/internal/engine"
)

// Write runs one statement, which returns the version as the server has stored it.
func (room) Write(ctx context.Context, db DB, p *engine.Plan, w engine.Write) (int64, engine.Raw, error) {
	args := make([]any, 0, 2+len(p.Token)+len(w.Stmt.Names))
	args = append(args, w.Key)
	switch w.Stmt.Op {
	case engine.Update, engine.Delete:
		args = expected(args, p.Kind, w.Expected)
	}
	if w.Stmt.Op == engine.Delete || w.Stmt.Op == engine.DeleteAny {
		tag, err := db.Exec(ctx, w.Stmt.Text, args...)
		return tag.RowsAffected(), engine.Raw{}, err
	}
	if p.Kind == engine.UUID {
		args = append(args, engine.FormatUUID(w.Next.U))
	}
	for _, name := range w.Stmt.Names {
		args = append(args, w.Set[name])
	}
	rows, err := db.Query(ctx, w.Stmt.Text, args...)
	if err != nil {
		return 0, engine.Raw{}, err
	}
	defer rows.Close()
	var next engine.Raw
	if rows.Next() {
		switch p.Kind {
		case engine.Int, engine.Timestamp:
			err = rows.Scan(&next.N) // never NULL: it was written just now
		default:
			next, _, err = version(p, rows)
		}
		if err != nil {
			return 0, next, err
		}
	}
	rows.Close()
	return rows.CommandTag().RowsAffected(), next, ofTrigger(rows.Err())
}
