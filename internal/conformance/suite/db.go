package suite

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
)

// DB is a database and the test's own pool on it. A statement that fails ends the test.
type DB struct {
	*sql.DB
	Kind devdb.Kind
	DSN  string
}

// NewDB makes an empty database.
func NewDB(t *testing.T, kind devdb.Kind) *DB {
	t.Helper()
	return OpenDB(t, kind, testdb.DSN(t, kind))
}

// Migrated makes a database with dblock's tables.
func Migrated(t *testing.T, kind devdb.Kind) *DB {
	t.Helper()
	return OpenDB(t, kind, testdb.Migrated(t, kind))
}

// OpenDB opens a pool on a database, which is closed at the end of the test.
func OpenDB(t *testing.T, kind devdb.Kind, dsn string) *DB {
	t.Helper()
	db := Must(ConnectOn(kind, dsn, &faultconn.Dialer{}))(t)
	t.Cleanup(func() { _ = db.Close() })
	return &DB{db, kind, dsn}
}

// As is d for the user of a DSN.
func (d *DB) As(dsn string) *DB { return &DB{d.DB, d.Kind, dsn} }

func (d *DB) Postgres() bool { return d.Kind == devdb.Postgres }

// Exec runs a statement and returns how many rows it changed.
func (d *DB) Exec(t *testing.T, statement string, args ...any) (rows int64) {
	t.Helper()
	result, err := d.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err, "%.300s", statement)
	rows, err = result.RowsAffected()
	require.NoError(t, err)
	return rows
}

// Count returns the number that a query returns.
func (d *DB) Count(t *testing.T, query string, args ...any) int64 {
	t.Helper()
	return ValueOf[int64](t, d, query, args...)
}

// Text returns the text that a query returns.
func (d *DB) Text(t *testing.T, query string, args ...any) string {
	t.Helper()
	return ValueOf[string](t, d, query, args...)
}

// Texts returns the first column of a query, as text.
func (d *DB) Texts(t *testing.T, query string, args ...any) []string {
	t.Helper()
	return ValuesOf[string](t, d, query, args...)
}

// ValueOf returns the first column of the only row of a query. NULL is the zero value.
func ValueOf[T any](t *testing.T, d *DB, query string, args ...any) T {
	t.Helper()
	var v sql.Null[T]
	require.NoError(t, d.QueryRowContext(t.Context(), query, args...).Scan(&v), "%.300s", query)
	return v.V
}

// ValuesOf returns the first column of a query.
func ValuesOf[T any](t *testing.T, d *DB, query string, args ...any) (values []T) {
	t.Helper()
	rows, err := d.QueryContext(t.Context(), query, args...)
	require.NoError(t, err, "%.300s", query)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v sql.Null[T]
		require.NoError(t, rows.Scan(&v))
		values = append(values, v.V)
	}
	require.NoError(t, rows.Err())
	return values
}

// Until waits until a query returns a number.
func (d *DB) Until(t *testing.T, query string, want int64, args ...any) {
	t.Helper()
	var got int64
	for ctx := Soon(t); ; SleepFor(ctx, 5*time.Millisecond) {
		if got = d.Count(t, query, args...); got == want {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %d, want %d", query, got, want)
		}
	}
}

// Tx begins a transaction with statements. It ends with the test at the latest.
func (d *DB) Tx(t *testing.T, level sql.IsolationLevel, statements ...string) *sql.Tx {
	t.Helper()
	o := &sql.TxOptions{Isolation: level}
	tx := Must(d.BeginTx(context.WithoutCancel(t.Context()), o))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	for _, statement := range statements {
		require.NoError(t, Second(tx.ExecContext(t.Context(), statement)), "%.300s", statement)
	}
	return tx
}

// Locked runs statements in a transaction that keeps the rows, and no gaps, until release is
// called.
func (d *DB) Locked(t *testing.T, statements ...string) (release func()) {
	t.Helper()
	tx := d.Tx(t, sql.LevelReadCommitted, statements...)
	return func() { _ = tx.Rollback() }
}

// Forgets remembers the rows of tables. It returns what puts them back, as a server does that has
// forgotten all commits since.
func (d *DB) Forgets(t *testing.T, tables ...string) (forget func()) {
	t.Helper()
	var back []string
	for _, table := range tables {
		d.Exec(t, "CREATE TABLE was_"+table+" AS SELECT * FROM "+table)
		insert := "INSERT INTO " + table + " SELECT * FROM was_" + table
		if d.Postgres() {
			insert = "INSERT INTO " + table + " OVERRIDING SYSTEM VALUE SELECT * FROM was_" + table
		}
		back = append(back, "DELETE FROM "+table, insert)
	}
	return func() {
		t.Helper()
		require.NoError(t, d.Tx(t, 0, back...).Commit())
	}
}

// EndSession has the server end a session, or just the statement that it runs.
func (d *DB) EndSession(ctx context.Context, id int64, statement bool) error {
	query := map[bool]string{false: "KILL %d", true: "KILL QUERY %d"}[statement]
	if d.Postgres() {
		query = map[bool]string{false: "SELECT pg_terminate_backend(%d)", true: "SELECT pg_cancel_backend(%d)"}[statement]
	}
	return Second(d.ExecContext(ctx, fmt.Sprintf(query, id)))
}

// ServiceUser makes a user with the grants that are documented for a service, and returns its DSN.
func (d *DB) ServiceUser(t *testing.T) (dsn string) {
	t.Helper()
	dsn, _ = d.User(t, schema.PostgresServiceGrants, schema.MySQLServiceGrants)
	return dsn
}

// User makes a user with the grants of the database's engine, and returns its DSN and its quoted
// name.
func (d *DB) User(t *testing.T, postgres, others func(in, user string) []string) (dsn, name string) {
	t.Helper()
	var created string
	var grants, drops []string
	if d.Postgres() {
		u := Must(url.Parse(d.DSN))(t)
		name = "service_of_" + strings.TrimPrefix(u.Path, "/")
		created, grants = "CREATE ROLE "+name+" LOGIN PASSWORD 'secret'", postgres("public", name)
		drops = []string{"DROP OWNED BY " + name, "DROP ROLE " + name}
		u.User = url.UserPassword(name, "secret")
		dsn = u.String()
	} else {
		cfg := Must(mysqldriver.ParseDSN(d.DSN))(t)
		user := "svc_" + cfg.DBName[max(0, len(cfg.DBName)-20):]
		created, grants = "CREATE USER '"+user+"'@'%' IDENTIFIED BY 'secret'", others(cfg.DBName, user)
		drops = []string{"DROP USER '" + user + "'@'%'"}
		cfg.User, cfg.Passwd = user, "secret"
		dsn, name = cfg.FormatDSN(), schema.QuoteMySQLAccount(user)
	}
	for _, statement := range append([]string{created}, grants...) {
		d.Exec(t, statement)
	}
	t.Cleanup(func() {
		for _, statement := range drops {
			_, _ = d.ExecContext(context.WithoutCancel(t.Context()), statement)
		}
	})
	return dsn, name
}

// OperatorNeedsEachGrant runs commands that do all that an operator does with the tables of a
// prefix, as the user of dsn. They succeed with the documented grants, and are refused without any
// one of them.
func (d *DB) OperatorNeedsEachGrant(t *testing.T, ofThese func(table string) bool, commands func(dsn string) func() error) {
	t.Helper()
	dsn, name := d.User(t, schema.PostgresOperatorGrants, schema.MySQLOperatorGrants)
	run, engine := commands(dsn), schema.MySQL
	require.NoError(t, run(), "with all grants")
	if d.Postgres() {
		engine = schema.Postgres
	}
	for _, table := range schema.Tables() {
		if !ofThese(table) {
			continue
		}
		for _, right := range schema.OperatorRights(engine, table) {
			d.Exec(t, fmt.Sprintf("REVOKE %s ON %s FROM %s", right, table, name))
			err := run()
			assert.ErrorIs(t, err, dblock.ErrPermission, "without %s on %s", right, table)
			d.Exec(t, fmt.Sprintf("GRANT %s ON %s TO %s", right, table, name))
		}
	}
}

func OfStock(table string) bool {
	return slices.Contains([]string{"dblock_stock", "dblock_reservation", "dblock_adjustment", "dblock_quota"}, table)
}

// ConnectOn opens a pool with the connections of a dialer.
func ConnectOn(kind devdb.Kind, dsn string, dialer *faultconn.Dialer) (*sql.DB, error) {
	if kind == devdb.Postgres {
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		cfg.DialFunc = dialer.DialContext
		return stdlib.OpenDB(*cfg), nil
	}
	cfg, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.DialFunc, cfg.Logger = dialer.DialContext, &mysqldriver.NopLogger{}
	connector, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// AppendQuery adds a setting to the query of a DSN.
func AppendQuery(dsn, setting string) string {
	if strings.Contains(dsn, "?") {
		return dsn + "&" + setting
	}
	return dsn + "?" + setting
}

// Appended returns what AppendQuery does, for a table of settings.
func Appended(setting string) func(*testing.T, string) string {
	return func(_ *testing.T, dsn string) string { return AppendQuery(dsn, setting) }
}
