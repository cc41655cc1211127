package programs

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/dblock-go/dblock/internal/devdb"
)

// fault is what others do to the connections and rows of a program, some times over.
type fault struct {
	What  string
	Every time.Duration
	Times int
	Lasts time.Duration `json:",omitempty"` // of locks
	Table string        `json:",omitempty"`
	Key   int           `json:",omitempty"`
}

const (
	interrupts = "interrupt" // KILL QUERY, pg_cancel_backend
	kills      = "kill"      // KILL, pg_terminate_backend
	locksRow   = "lock row"
	locksTable = "lock table"
)

// keyOf is the column by which a fault finds the rows of a key.
var keyOf = map[string]string{
	"dblock_lease": "lease_key", "dblock_reader": "lease_key", "dblock_permit": "lease_key", "dblock_ticket": "lease_key",
	"dblock_lease_waiter": "lease_key", "dblock_member": "",
	"dblock_stock": "sku", "dblock_reservation": "sku", "dblock_quota": "sku", "dblock_adjustment": "sku",
}

var lockTables = []string{"dblock_lease", "dblock_reader", "dblock_permit", "dblock_ticket", "dblock_lease_waiter", "dblock_member"}

func drawFaults(t *rapid.T, tables []string) []fault {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fault {
		f := fault{
			What:  oneOf(t, "what", interrupts, kills, locksRow, locksTable),
			Every: oneOf(t, "every", 3*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond),
			Times: oneOf(t, "times", 1, 5, 100),
			Key:   rapid.IntRange(0, 2).Draw(t, "key"),
		}
		if f.What == locksRow || f.What == locksTable {
			f.Table = rapid.SampledFrom(tables).Draw(t, "table")
			f.Lasts = oneOf(t, "lasts", 5*time.Millisecond, 50*time.Millisecond, 300*time.Millisecond)
		}
		return f
	}), 1, 3).Draw(t, "faults")
}

// saboteur is the operator, or another service, that faults come from.
type saboteur struct {
	kind devdb.Kind
	db   *sql.DB
	run  string
}

// strike does all faults of a program, and returns when they are over, or ctx is.
func (s *saboteur) strike(ctx context.Context, faults []fault) {
	var all sync.WaitGroup
	for _, f := range faults {
		all.Go(func() {
			conn, err := s.db.Conn(ctx)
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			if s.kind == devdb.Postgres {
				_, _ = conn.ExecContext(ctx, "SET application_name = 'saboteur'")
			}
			for range f.Times {
				select {
				case <-ctx.Done():
					return
				case <-time.After(f.Every/2 + rand.N(f.Every)):
				}
				s.once(ctx, conn, f)
			}
		})
	}
	all.Wait()
}

// once does a fault. It may hit nothing, and its own statement may be what another fault hits.
func (s *saboteur) once(ctx context.Context, conn *sql.Conn, f fault) {
	if f.What == interrupts || f.What == kills {
		for _, id := range s.victims(ctx, conn, f.What == interrupts) {
			_, _ = conn.ExecContext(ctx, s.end(id, f.What == interrupts))
		}
		return
	}
	bound, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	tx, err := conn.BeginTx(bound, nil)
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback() }()
	statement := fmt.Sprintf("SELECT 1 FROM %s FOR UPDATE", f.Table) // MySQL's LOCK TABLES is not of the transaction
	switch column := keyOf[f.Table]; {
	case f.What == locksTable && s.kind == devdb.Postgres:
		statement = fmt.Sprintf("LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE", f.Table)
	case f.What == locksRow && column == "":
		statement = fmt.Sprintf("SELECT 1 FROM %s LIMIT 1 FOR UPDATE", f.Table)
	case f.What == locksRow:
		statement = fmt.Sprintf("SELECT 1 FROM %s WHERE %s = '%s' FOR UPDATE", f.Table, column, nameOf(s.run, f.Key))
	}
	if _, err := tx.ExecContext(bound, statement); err != nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(f.Lasts):
	}
}

func (s *saboteur) end(id int64, statement bool) string {
	switch {
	case s.kind == devdb.Postgres && statement:
		return fmt.Sprintf("SELECT pg_catalog.pg_cancel_backend(%d)", id)
	case s.kind == devdb.Postgres:
		return fmt.Sprintf("SELECT pg_catalog.pg_terminate_backend(%d)", id)
	case statement:
		return fmt.Sprintf("KILL QUERY %d", id)
	}
	return fmt.Sprintf("KILL %d", id)
}

// victims is one connection of the program's, or those that run a statement.
func (s *saboteur) victims(ctx context.Context, conn *sql.Conn, busy bool) []int64 {
	all, err := s.connections(ctx, conn, busy)
	if err != nil || len(all) == 0 {
		return nil
	}
	if busy {
		return all
	}
	return []int64{all[rand.IntN(len(all))]}
}

func (s *saboteur) connections(ctx context.Context, conn *sql.Conn, busy bool) (ids []int64, err error) {
	if s.kind == devdb.Postgres {
		query := `SELECT pid FROM pg_catalog.pg_stat_activity WHERE datname = pg_catalog.current_database()
			AND application_name <> 'saboteur' AND backend_type = 'client backend'`
		if busy {
			query += " AND state = 'active'"
		}
		rows, err := conn.QueryContext(ctx, query)
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, rows.Err()
	}
	return s.listed(ctx, conn, busy)
}

// listed reads SHOW PROCESSLIST, whose columns differ between servers.
func (s *saboteur) listed(ctx context.Context, conn *sql.Conn, busy bool) (ids []int64, err error) {
	var database string
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
		return nil, err
	}
	rows, err := conn.QueryContext(ctx, "SHOW PROCESSLIST")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var id int64
		var db, command, info sql.NullString
		to := make([]any, len(columns))
		for i, c := range columns {
			switch to[i] = new(sql.RawBytes); strings.ToLower(c) {
			case "id":
				to[i] = &id
			case "db":
				to[i] = &db
			case "command":
				to[i] = &command
			case "info":
				to[i] = &info
			}
		}
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		if db.String != database || strings.HasPrefix(info.String, "SHOW PROCESSLIST") || busy && command.String == "Sleep" {
			continue
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
