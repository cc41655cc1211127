package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/pressly/goose/v3/database"

	"github.com/dblock-go/dblock/internal/schema"
)

// begin records that a version is no longer, or not yet, whole. A repair leaves the record: what is
// applied stays so.
func (r *run) begin(ctx context.Context, on database.DBTxConn, h half) error {
	applied, found := r.recorded[h.Version]
	var err error
	switch {
	case !found:
		if err = r.advance(ctx, on); err != nil {
			return err
		}
		_, err = on.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (version_id, is_applied) VALUES (%d, false)", r.versionTable(), h.Version))
	case applied && h.direction == "down":
		_, err = on.ExecContext(ctx, r.set(h.Version, false))
	}
	if err == nil && (!found || h.direction == "down") {
		r.recorded[h.Version] = false
	}
	return err
}

// advance brings the sequence of the ids to where the rows are: logical replication copies rows,
// and no sequences. On MySQL and MariaDB the server does that.
func (r *run) advance(ctx context.Context, on database.DBTxConn) error {
	if r.engine != Postgres {
		return nil
	}
	_, err := on.ExecContext(ctx, "SELECT pg_catalog.setval(pg_catalog.pg_get_serial_sequence($1::text, 'id'::text)::regclass, max(v.id)::bigint) FROM "+
		r.versionTable()+" v", r.versionTable())
	return err
}

// end records that a version is whole, or gone.
func (r *run) end(ctx context.Context, on database.DBTxConn, h half) error {
	if h.direction == "down" {
		if err := r.store.Delete(ctx, on, h.Version); err != nil {
			return err
		}
		delete(r.recorded, h.Version)
		return nil
	}
	if !r.recorded[h.Version] {
		if _, err := on.ExecContext(ctx, r.set(h.Version, true)); err != nil {
			return err
		}
	}
	r.recorded[h.Version] = true
	return nil
}

func (r *run) set(version int64, applied bool) string {
	return fmt.Sprintf("UPDATE %s SET is_applied = %t WHERE version_id = %d", r.versionTable(), applied, version)
}

func (r *run) exec(ctx context.Context, on database.DBTxConn, s statement) error {
	_, err := on.ExecContext(ctx, r.engine.qualify(r.schema)(s.text))
	return err
}

// stepPostgres runs a migration in one transaction, but for what can run apart: to build an index
// of a table that has rows in a transaction would keep its writers waiting until the end.
func (r *run) stepPostgres(ctx context.Context, h half, wanted func(part) bool) error {
	var within, apart []statement
	for _, s := range h.statements {
		if s.apart && h.direction == "up" && r.there.HasTable(s.table) && !r.created[s.table] {
			apart = append(apart, s)
		} else {
			within = append(within, s)
		}
	}
	there, created, recorded := r.there, r.created, r.recorded
	var table string
	err := r.patiently(ctx, func() string { return table }, func() error {
		r.there, r.created, r.recorded = maps.Clone(there), maps.Clone(created), maps.Clone(recorded)
		return r.inTx(ctx, func(tx *sql.Tx) error {
			table = schema.VersionTable
			if err := lockTimeout(ctx, tx, r.patience(), true); err != nil {
				return err
			}
			if err := r.begin(ctx, tx, h); err != nil {
				return err
			}
			if err := r.within(ctx, tx, h, within, wanted, &table); err != nil || len(apart) > 0 {
				return err
			}
			return r.end(ctx, tx, h)
		})
	})
	if err != nil {
		r.there, r.created, r.recorded = there, created, recorded
	}
	if err != nil || len(apart) == 0 {
		return err
	}
	for _, s := range apart {
		if err := r.apart(ctx, s, wanted); err != nil {
			return err
		}
	}
	return r.patiently(ctx, func() string { return schema.VersionTable }, func() error {
		if err := lockTimeout(ctx, r.conn, r.patience(), false); err != nil { // the build had another
			return err
		}
		return r.end(ctx, r.conn, h)
	})
}

func (r *run) inTx(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := r.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// within runs statements in the transaction. Its waits for tables that it alters are bounded
// together: what it has locked, others wait for.
func (r *run) within(ctx context.Context, tx *sql.Tx, h half, list []statement, wanted func(part) bool, table *string) error {
	bound := r.patience()
	for _, s := range list {
		s, any := s.only(wanted)
		if !any {
			continue
		}
		began := time.Now()
		existing := h.direction == "down" || s.table == "" || r.there.HasTable(s.table) && !r.created[s.table]
		if existing {
			if err := lockTimeout(ctx, tx, bound, true); err != nil {
				return err
			}
		}
		*table = s.table
		if err := r.exec(ctx, tx, s); err != nil {
			return err
		}
		if existing && s.locks() {
			bound = max(bound-time.Since(began), time.Millisecond)
		}
		for _, p := range s.parts {
			r.done(p)
		}
	}
	return nil
}

// apart runs a statement that readers and writers do not wait for, so an attempt may wait for all
// that is left of LockTimeout. It counts as a whole: to build an index once more is expensive.
func (r *run) apart(ctx context.Context, s statement, wanted func(part) bool) error {
	p := s.parts[0]
	return r.repeat(ctx, math.MaxInt64, func() string { return s.table }, func(left time.Duration) error {
		began := time.Now()
		if err := lockTimeout(ctx, r.conn, left, false); err != nil {
			return err
		}
		there, err := r.objects(ctx)
		if err != nil {
			return err
		}
		r.there = there
		if !wanted(p) {
			return nil
		}
		text := s.text
		if p.verb == add {
			if r.invalid(p.object) {
				drop := "DROP INDEX CONCURRENTLY " + r.engine.quote(r.schema) + "." + r.engine.quote(p.object.Name)
				if _, err := r.conn.ExecContext(ctx, drop); err != nil {
					return err
				}
				if err := lockTimeout(ctx, r.conn, left-time.Since(began), false); err != nil {
					return err
				}
			}
			text = concurrently(text)
		}
		if _, err := r.conn.ExecContext(ctx, r.engine.qualify(r.schema)(text)); err != nil {
			return err
		}
		r.done(p)
		return nil
	})
}
