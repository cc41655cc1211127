package pgoptimistic

import (
	"context"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Write runs one statement, which returns the version as the server has stored it.
func (dialect) Write(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, r driver.Row) (hit int64, next driver.Raw, err error) {
	on, taken, err := acquire(ctx, db)
	if err != nil {
		return 0, next, err
	}
	if taken != nil {
		defer taken.Release()
	}
	args := make([]any, 0, 2+len(p.Token)+len(s.Names))
	args = append(args, r.Key)
	switch s.Op {
	case driver.Update, driver.Delete:
		args = expected(args, p.Kind, r.Expected)
	}
	if s.Op == driver.Delete || s.Op == driver.DeleteAny {
		tag, err := on.Exec(ctx, s.Text, args...)
		return tag.RowsAffected(), next, marked(err)
	}
	if p.Kind == driver.UUID {
		args = append(args, driver.FormatUUID(r.Next.U))
	}
	for _, name := range s.Names {
		args = append(args, r.Set[name])
	}
	rows, err := on.Query(ctx, s.Text, args...)
	if err != nil {
		return 0, next, marked(err)
	}
	defer rows.Close()
	if rows.Next() {
		switch p.Kind {
		case driver.Int, driver.Timestamp:
			err = rows.Scan(&next.N) // never NULL, as it was written just now, and Values would allocate
		default:
			next, err = version(p, rows)
		}
		if err != nil {
			return 0, next, err
		}
	}
	rows.Close()
	return rows.CommandTag().RowsAffected(), next, marked(rows.Err())
}
