package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/schema"
)

// DB is what the calls take: a pool of pgx, or a *sql.DB of MySQL, MariaDB or Postgres (through
// pgx/stdlib). Which server it leads to is asked from the server. It is never closed.
type DB interface {
	*pgxpool.Pool | *sql.DB
}

// target is a place whose server was looked at and found good: one schema of one database.
type target struct {
	engine Engine
	db     *sql.DB
	schema string // never empty: what the connection's setting means was asked once
	server string // "MySQL" or "MariaDB", if the engine is MySQL
	direct bool   // no pooler between, as far as can be seen
	owner  pgdb.ForeignOwnerRow
	close  func() error
}

func (t *target) versionTable() string {
	return t.engine.quote(t.schema) + "." + schema.VersionTable
}

// open looks at the server behind db. The caller must call the target's close.
func open[D DB](ctx context.Context, db D, schemaName string) (*target, error) {
	t := &target{schema: schemaName, close: func() error { return nil }}
	switch db := any(db).(type) {
	case *pgxpool.Pool:
		if db == nil {
			return nil, errNilDB
		}
		t.db = stdlib.OpenDBFromPool(db)
		t.close = t.db.Close // this wrapper is ours; the pool below it stays open
	case *sql.DB:
		if db == nil {
			return nil, errNilDB
		}
		t.db = db
	}
	if err := t.inspect(ctx); err != nil {
		_ = t.close() // the reason is more useful
		return nil, err
	}
	return t, nil
}

var errNilDB = &dblock.InvalidError{Field: "db", Reason: "it is nil: pass an open *pgxpool.Pool or *sql.DB"}

// inspect writes nothing.
func (t *target) inspect(ctx context.Context) error {
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return firstContact(err)
	}
	defer func() { _ = conn.Close() }() // goes back to its pool
	version, err := t.version(ctx, conn)
	if err != nil {
		return firstContact(err)
	}
	if rest, ok := strings.CutPrefix(version, "PostgreSQL "); ok {
		t.engine = Postgres
		err = schema.PostgresServer(rest)
	} else {
		t.engine = MySQL
		t.server, err = schema.MySQLServer(version)
	}
	if err != nil {
		return err
	}
	if err := t.engine.checkName(t.schema); err != nil {
		return &dblock.InvalidError{Field: "Options.Schema", Reason: err.Error()}
	}
	if t.engine == Postgres {
		return t.inspectPostgres(ctx, conn)
	}
	return t.inspectMySQL(ctx, conn)
}

// version asks what the server is. Without a schema Postgres would look for the function on the
// search_path, which is not checked yet. With one it fails on MySQL and MariaDB.
func (t *target) version(ctx context.Context, conn *sql.Conn) (version string, err error) {
	if _, is := t.db.Driver().(*mysql.MySQLDriver); !is {
		err = conn.QueryRowContext(ctx, "SELECT pg_catalog.version()").Scan(&version)
		if !errors.As(err, new(*mysql.MySQLError)) {
			return version, err
		}
	}
	err = conn.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	return version, err
}

// inspectPostgres prefers the schema where the tables are over the one where new tables would go: a
// "$user" schema that is created later must not lead to a second set of tables.
func (t *target) inspectPostgres(ctx context.Context, conn *sql.Conn) error {
	var found pgdb.FindSchemaRow
	if err := conn.QueryRowContext(ctx, pgdb.FindSchema).Scan(&found.Name, &found.SearchPath); err != nil {
		return fmt.Errorf("dblock: looking for the schema: %w", err)
	}
	if err := postgres.CheckSearchPath(found.SearchPath); err != nil {
		return err
	}
	if t.schema = cmp.Or(t.schema, found.Name); t.schema == "" {
		return errors.New("dblock: no schema of the connection's search_path exists: name one in Options.Schema")
	}
	var version, encoding, clientEncoding, untrusted string
	err := conn.QueryRowContext(ctx, pgdb.ServerVersion, t.schema).Scan(&version, &encoding, &clientEncoding, &untrusted)
	if err != nil {
		return fmt.Errorf("dblock: looking for the owners of the tables: %w", err)
	}
	if err := postgres.CheckOwners(untrusted); err != nil {
		return err
	}
	if err := conn.QueryRowContext(ctx, pgdb.ForeignOwner, t.schema).Scan(&t.owner.Stranger, &t.owner.MayCreate); err != nil {
		return fmt.Errorf("dblock: looking for the owners of the tables: %w", err)
	}
	t.direct, err = direct(ctx, conn)
	return err
}

// checkOwner refuses a stranger's tables. A session that may not create tables has to take what it
// finds: it is that of a service, which calls Up to see that there is nothing to do.
func (t *target) checkOwner() error {
	if t.owner.Stranger == "" || !t.owner.MayCreate {
		return nil
	}
	return fmt.Errorf("%w: %s, which neither owns the schema nor was granted CREATE on it: a trigger of that role's would run with the "+
		"rights of every session that writes the table: connect as that role or as a member of it, give the table to the owner of the "+
		"schema, or grant the role CREATE on the schema", dblock.ErrSchema, t.owner.Stranger)
}

func (t *target) inspectMySQL(ctx context.Context, conn *sql.Conn) error {
	t.direct = true // what a proxy does to sessions shows in no number here
	if t.schema != "" {
		return nil
	}
	var current sql.NullString
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE() LIMIT 1").Scan(&current); err != nil {
		return fmt.Errorf("dblock: looking for the database: %w", err)
	}
	if !current.Valid {
		return errors.New("dblock: the connection has no database: name one in the DSN or in Options.Schema")
	}
	t.schema = current.String
	return nil
}

// direct reports whether the server process is the one that greeted: a pooler greets by itself.
// Where the driver is wrapped, so that this can't be seen, it is taken as direct.
func direct(ctx context.Context, conn *sql.Conn) (bool, error) {
	var greeted, pid uint32
	err := conn.Raw(func(driverConn any) error {
		if c, ok := driverConn.(*stdlib.Conn); ok {
			greeted = c.Conn().PgConn().PID()
		}
		return nil
	})
	if err != nil || greeted == 0 {
		return err == nil, err
	}
	if err := conn.QueryRowContext(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&pid); err != nil {
		return false, fmt.Errorf("dblock: looking for a pooler: %w", err)
	}
	return greeted == pid, nil
}
