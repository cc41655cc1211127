package pgoptimistic

import (
	"context"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Write runs one statement, which returns the version as the server has stored it.
func (dialect) Write(ctx context.Context, db DB, p *driver.Plan, w driver.Write) (int64, driver.Raw, error) {
	args := make([]any, 0, 2+len(p.Token)+len(w.Stmt.Names))
	args = append(args, w.Key)
	switch w.Stmt.Op {
	case driver.Update, driver.Delete:
		args = expected(args, p.Kind, w.Expected)
	}
	if w.Stmt.Op == driver.Delete || w.Stmt.Op == driver.DeleteAny {
		tag, err := db.Exec(ctx, w.Stmt.Text, args...)
		return tag.RowsAffected(), driver.Raw{}, err
	}
	if p.Kind == driver.UUID {
		args = append(args, driver.FormatUUID(w.Next.U))
	}
	for _, name := range w.Stmt.Names {
		args = append(args, w.Set[name])
	}
	rows, err := db.Query(ctx, w.Stmt.Text, args...)
	if err != nil {
		return 0, driver.Raw{}, err
	}
	defer rows.Close()
	var next driver.Raw
	if rows.Next() {
		switch p.Kind {
		case driver.Int, driver.Timestamp:
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
