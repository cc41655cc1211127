package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/database"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/schema"
)

// store is goose's own version table.
type store struct {
	database.Store
	target   *target
	prepared bool // the table is there: an answer that it is not is an error
}

func newStore(t *target) (*store, error) {
	inner, err := gooseStore(t.engine, t.versionTable())
	return &store{Store: inner, target: t}, err
}

func gooseStore(engine Engine, table string) (database.Store, error) {
	inner, err := database.NewStore(database.Dialect(engine), table)
	if engine == MySQL && err == nil {
		inner = transactional{inner}
	}
	return inner, err
}

// transactional makes goose's table in InnoDB, whatever default_storage_engine is.
type transactional struct{ database.Store }

func (t transactional) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	return t.Store.CreateVersionTable(ctx, inInnoDB{db})
}

type inInnoDB struct{ database.DBTxConn }

func (db inInnoDB) ExecContext(ctx context.Context, create string, args ...any) (sql.Result, error) {
	return db.DBTxConn.ExecContext(ctx, create+" ENGINE = InnoDB", args...)
}

// exists replaces goose's own question, which takes a quoted name for an unquoted one.
func (s *store) exists(ctx context.Context, db database.DBTxConn) (exists bool, err error) {
	if s.target.engine == Postgres {
		err = db.QueryRowContext(ctx, "SELECT pg_catalog.to_regclass($1::text) IS NOT NULL", s.Tablename()).Scan(&exists)
	} else {
		// Which names are the same is the server's setting; information_schema doesn't always
		// follow it.
		exists = true
		var none int
		err = db.QueryRowContext(ctx, "SELECT 1 FROM "+s.Tablename()+" LIMIT 0").Scan(&none)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		if noSuchTable(err) && !s.prepared {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("dblock: looking for %s: %w", s.Tablename(), err)
	}
	return exists, nil
}

// read reads the versions on a connection of its own. It tries once.
func (s *store) read(ctx context.Context) (versions map[int64]bool, err error) {
	conn, err := s.target.db.Conn(ctx)
	if err != nil {
		return nil, firstContact(err)
	}
	defer func() { _ = conn.Close() }() // goes back to its pool
	r := &run{target: s.target, conn: conn, opts: Options{LockTimeout: patience}}
	if s.target.engine == MySQL {
		restore, err := r.settle(ctx)
		defer restore()
		if err != nil {
			return nil, firstContact(err)
		}
	}
	err = r.patiently(ctx, func() string { return schema.VersionTable }, func() error {
		return r.inTx(ctx, func(tx *sql.Tx) error {
			if s.target.engine == Postgres { // within the transaction: behind a pooler the session serves others
				if err := lockTimeout(ctx, tx, r.patience(), true); err != nil {
					return err
				}
			}
			versions, err = s.versions(ctx, tx)
			return err
		})
	})
	return versions, err
}

// versions are the ones in the database, without goose's 0: whether each is applied, or was begun.
// It writes nothing.
func (s *store) versions(ctx context.Context, db database.DBTxConn) (map[int64]bool, error) {
	exists, err := s.exists(ctx, db)
	if err != nil || !exists {
		return nil, err
	}
	rows, err := s.ListMigrations(ctx, db)
	return recorded(rows), err
}

func recorded(rows []*database.ListMigrationsResult) map[int64]bool {
	versions := make(map[int64]bool, len(rows))
	for _, row := range rows {
		if row.Version > 0 {
			whole, twice := versions[row.Version]
			versions[row.Version] = row.IsApplied && (whole || !twice)
		}
	}
	return versions
}

// prepare runs under the lock. It leaves a version table that has goose's row 0, whatever a process
// that was cut off has left behind: on MySQL a table is there at once and its rows are not. It
// returns the versions.
func (s *store) prepare(ctx context.Context, conn *sql.Conn) (map[int64]bool, error) {
	if err := s.createSchema(ctx, conn); err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	exists, err := s.exists(ctx, tx)
	if err != nil {
		return nil, err
	}
	if !exists {
		if err := s.CreateVersionTable(ctx, tx); err != nil {
			return nil, err
		}
	} else if err := s.checkEngine(ctx, tx); err != nil {
		return nil, err
	}
	rows, err := s.ListMigrations(ctx, tx)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		if err := s.Insert(ctx, tx, database.InsertRequest{Version: 0}); err != nil {
			return nil, err
		}
	}
	err = tx.Commit()
	s.prepared = err == nil
	return recorded(rows), err
}

// checkEngine refuses a version table of another storage engine than InnoDB: a crash could lose its
// rows.
func (s *store) checkEngine(ctx context.Context, db mysql.Conn) error {
	if s.target.engine != MySQL {
		return nil
	}
	name := s.target.engine.quote(s.target.schema) + "." + s.target.engine.quote(schema.VersionTable)
	table, err := mysql.InspectTable(ctx, db, name)
	if err != nil {
		return fmt.Errorf("dblock: looking at %s: %w", s.Tablename(), err)
	}
	if reason := table.RowLocks(s.Tablename()); reason != "" {
		return fmt.Errorf("%w: %s %s", dblock.ErrSchema, s.Tablename(), reason)
	}
	return nil
}

// createSchema asks first: CREATE SCHEMA IF NOT EXISTS needs the right to create one even if it
// exists.
func (s *store) createSchema(ctx context.Context, conn *sql.Conn) error {
	if s.target.engine != Postgres {
		return nil
	}
	var exists bool
	err := conn.QueryRowContext(ctx, "SELECT count(*) > 0 FROM pg_catalog.pg_namespace WHERE nspname = $1::text",
		s.target.schema).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema.QuotePostgres(s.target.schema))
	}
	if err != nil {
		return fmt.Errorf("dblock: schema %s: %w", s.target.schema, err)
	}
	return nil
}
