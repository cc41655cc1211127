package suite

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
)

const (
	Members = "SELECT count(*) FROM dblock_member"

	// FrozenDeadline is that of calls while the server is frozen.
	FrozenDeadline = 100 * time.Millisecond
)

// OwnServer starts a server that no other test uses and that syncs its commits, with a database
// that has dblock's tables. If the server is given from outside, and cannot be killed, both are
// nil.
func OwnServer(t *testing.T, kind devdb.Kind) (*devdb.Server, *DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server, err := devdb.Start(ctx, kind, devdb.Options{Durable: true})
	if err != nil && !errors.As(err, new(*devdb.NotFoundError)) {
		require.NoError(t, err)
	}
	if err != nil || server.PID() == 0 {
		t.Logf("no %s server to kill and freeze: only its sessions are", kind)
		return nil, nil
	}
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	dsn, _, err := server.CreateDatabase(ctx)
	require.NoError(t, err)
	db := OpenDB(t, kind, dsn)
	db.SetMaxIdleConns(0) // one that was idle may be dead
	require.NoError(t, Second(migrations.Up(ctx, db.DB, migrations.Options{})))
	return server, db
}

// ReadOnlyServer is a MySQL or MariaDB server of its own that becomes read-only and back.
type ReadOnlyServer struct {
	own *DB
	DB  *DB // of a user that may not write while it is read-only
}

func NewReadOnlyServer(t *testing.T, kind devdb.Kind) *ReadOnlyServer {
	t.Helper()
	server, db := OwnServer(t, kind)
	if server == nil {
		return nil
	}
	cfg := Must(mysql.ParseDSN(db.DSN))(t)
	db.Exec(t, "CREATE USER app IDENTIFIED BY 'app'")
	db.Exec(t, "GRANT ALL ON "+cfg.DBName+".* TO app")
	cfg.User, cfg.Passwd = "app", "app"
	return &ReadOnlyServer{db, db.As(cfg.FormatDSN())}
}

// Become waits for the commits and the statements under way, as each server does.
func (s *ReadOnlyServer) Become(t *testing.T, readOnly bool) {
	t.Helper()
	switch {
	case !readOnly:
		s.own.Exec(t, "SET GLOBAL read_only = OFF")
	case s.own.Kind == devdb.MySQL:
		s.own.Exec(t, "SET GLOBAL super_read_only = ON")
	default:
		s.own.Exec(t, "SET GLOBAL read_only = ON")
	}
}

// SaysReadOnly fails unless err says that nothing was written to what, why, and what to do.
func SaysReadOnly(t *testing.T, what string, err error) {
	t.Helper()
	assert.ErrorIs(t, err, dblock.ErrUnavailable, what)
	assert.NotErrorIs(t, err, dblock.ErrOutcomeUnknown, what)
	assert.ErrorContains(t, err, what)
	assert.ErrorContains(t, err, "read-only: connect to the primary", what)
}

// IsDifferent reports whether an error says that tables of the right version lack an object.
func IsDifferent(err error, object string) bool {
	var wrong *dblock.SchemaError
	return errors.As(err, &wrong) && wrong.Have == wrong.Want && errors.Is(err, dblock.ErrSchema) &&
		strings.Contains(strings.Join(wrong.Differences, "\n"), object+" is missing") && strings.Contains(err.Error(), "dblock migrate up")
}

// RefusesUnsafeTables opens over a table on which a nil error would not be a committed write. On
// MySQL and MariaDB it has another storage engine, or a trigger that may change rows. On Postgres
// it has no write-ahead log, is of several tables, or has a trigger or a rule that may skip rows.
// The controls are safe, and opened.
func RefusesUnsafeTables(t *testing.T, kind devdb.Kind, table string, exec func(string), open func() error) {
	t.Helper()
	on, change, skip := " ON "+table, " FOR EACH ROW SET @changed = 1", " FOR EACH ROW EXECUTE FUNCTION skip_row()"
	list := [][3]string{ // do, undo, and what the error says
		{"ALTER TABLE " + table + " ENGINE = MyISAM", "ALTER TABLE " + table + " ENGINE = InnoDB", "the storage engine MyISAM instead of InnoDB"},
		{"CREATE TRIGGER changes BEFORE INSERT" + on + change, "DROP TRIGGER changes", `the trigger "changes"`},
		{"CREATE TRIGGER changes BEFORE UPDATE" + on + change, "DROP TRIGGER changes", `the trigger "changes"`},
	}
	if kind != devdb.Postgres {
		exec("CREATE TRIGGER audits AFTER UPDATE" + on + change)
	} else {
		exec("CREATE FUNCTION skip_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
		list = [][3]string{
			{"CREATE TRIGGER skips BEFORE INSERT" + on + skip, "DROP TRIGGER skips" + on, `the trigger "skips"`},
			{"CREATE TRIGGER skips BEFORE UPDATE OR DELETE" + on + skip, "DROP TRIGGER skips" + on, `the trigger "skips"`},
			{"ALTER TABLE " + table + " SET UNLOGGED", "ALTER TABLE " + table + " SET LOGGED", "the persistence UNLOGGED"},
			{"CREATE TABLE archive () INHERITS (" + table + ")", "DROP TABLE archive", "inheritance"},
			{"CREATE RULE skips AS ON INSERT TO " + table + " DO INSTEAD NOTHING", "DROP RULE skips" + on, `the rule "skips"`},
		}
		exec("CREATE TRIGGER audits AFTER INSERT OR UPDATE OR DELETE" + on + skip)
		exec("CREATE TRIGGER counts BEFORE INSERT" + on + " EXECUTE FUNCTION skip_row()")
		exec("CREATE TRIGGER sleeps BEFORE INSERT" + on + skip)
		exec("ALTER TABLE " + table + " DISABLE TRIGGER sleeps")
	}
	for _, u := range list {
		assert.NoError(t, open(), "the control of %s", u[2])
		exec(u[0])
		if wrong := As[*dblock.SchemaError](t, open()); assert.Len(t, wrong.Differences, 1, u[0]) {
			assert.True(t, strings.HasPrefix(wrong.Differences[0], "table "+table+" has "+u[2]), wrong.Differences[0])
		}
		exec(u[1])
	}
}

// RefusesBadSessions opens over connections that commit nothing by themselves, read what is not
// committed, or leave out rows. Only MySQL and MariaDB have them. On Postgres it opens over
// databases of other encodings.
func RefusesBadSessions(t *testing.T, kind devdb.Kind, dsn string, open func(dsn string) error) error {
	isolation := map[devdb.Kind]string{devdb.MySQL: "transaction_isolation", devdb.MariaDB: "tx_isolation"}[kind]
	if isolation == "" {
		return refusesOtherEncodings(t, dsn, open)
	}
	refused := map[string]string{
		"autocommit=0": "autocommit", isolation + "=%27READ-UNCOMMITTED%27": "READ UNCOMMITTED", strings.Replace(isolation, "isolation", "read_only", 1) + "=1": "read_only",
		"sql_select_limit=1000000": "sql_select_limit", "sql_select_limit=3": "sql_select_limit", "sql_select_limit=0": "sql_select_limit",
		"completion_type=1": "completion_type", "completion_type=2": "completion_type", "sql_safe_updates=1": "sql_safe_updates",
	}
	if kind == devdb.MariaDB { // MySQL has none
		refused["check_constraint_checks=0"] = "check_constraint_checks"
		refused["sql_mode='EMPTY_STRING_IS_NULL'"] = "EMPTY_STRING_IS_NULL"
	}
	for setting, word := range refused {
		err := open(AppendQuery(dsn, setting))
		if !errors.Is(err, dblock.ErrUnsupported) || errors.Is(err, dblock.ErrUnavailable) || !strings.Contains(err.Error(), word) {
			return fmt.Errorf("with %s: %w; want ErrUnsupported alone, that names it", setting, err)
		}
	}
	return nil
}

// refusesOtherEncodings opens over databases without tables, which are refused for their encodings.
// The control is refused for its tables.
func refusesOtherEncodings(t *testing.T, dsn string, open func(dsn string) error) (wrong error) {
	u := Must(url.Parse(dsn))(t)
	db, own := OpenDB(t, devdb.Postgres, dsn), strings.TrimPrefix(u.Path, "/")
	for encoding, want := range map[string]error{"LATIN1": dblock.ErrUnsupported, "SQL_ASCII": dblock.ErrUnsupported, "UTF8": dblock.ErrSchema} {
		name := own + "_" + strings.ToLower(encoding)
		db.Exec(t, `CREATE DATABASE "`+name+`" ENCODING '`+encoding+`' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
		u.Path = "/" + name
		if err := open(u.String()); !errors.Is(err, want) || want == dblock.ErrUnsupported && !strings.Contains(err.Error(), "is "+encoding+",") {
			wrong = errors.Join(wrong, fmt.Errorf("with the encoding %s: %w; want %w", encoding, err, want))
		}
		db.Exec(t, `DROP DATABASE "`+name+`" WITH (FORCE)`)
	}
	return wrong
}
