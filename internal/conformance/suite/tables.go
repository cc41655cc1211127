package suite

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// IsDifferent reports whether an error says that tables of the right version lack an object.
func IsDifferent(err error, object string) bool {
	var wrong *dblock.SchemaError
	return errors.As(err, &wrong) && wrong.Have == wrong.Want && errors.Is(err, dblock.ErrSchema) &&
		strings.Contains(strings.Join(wrong.Differences, "\n"), object+" is missing") && strings.Contains(err.Error(), "dblock migrate up")
}

// RefusesUnsafeTables opens over a table on which a nil error would not be a committed write: of another storage engine on
// MySQL and MariaDB, on Postgres with a trigger or a rule that may skip rows. The controls are safe, and opened.
func RefusesUnsafeTables(t *testing.T, kind devdb.Kind, table string, exec func(string), open func() error) {
	t.Helper()
	type unsafe struct{ do, undo, says string }
	list := []unsafe{{"ALTER TABLE " + table + " ENGINE = MyISAM", "ALTER TABLE " + table + " ENGINE = InnoDB", "the storage engine MyISAM instead of InnoDB"}}
	if kind == devdb.Postgres {
		exec("CREATE FUNCTION skip_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
		drop := "DROP TRIGGER skips ON " + table
		list = []unsafe{
			{"CREATE TRIGGER skips BEFORE INSERT ON " + table + " FOR EACH ROW EXECUTE FUNCTION skip_row()", drop, `the trigger "skips"`},
			{"CREATE TRIGGER skips BEFORE UPDATE OR DELETE ON " + table + " FOR EACH ROW EXECUTE FUNCTION skip_row()", drop, `the trigger "skips"`},
			{"CREATE RULE skips AS ON INSERT TO " + table + " DO INSTEAD NOTHING", "DROP RULE skips ON " + table, `the rule "skips"`},
		}
		exec("CREATE TRIGGER audits AFTER INSERT OR UPDATE OR DELETE ON " + table + " FOR EACH ROW EXECUTE FUNCTION skip_row()")
		exec("CREATE TRIGGER counts BEFORE INSERT ON " + table + " EXECUTE FUNCTION skip_row()")
		exec("CREATE TRIGGER sleeps BEFORE INSERT ON " + table + " FOR EACH ROW EXECUTE FUNCTION skip_row()")
		exec("ALTER TABLE " + table + " DISABLE TRIGGER sleeps")
	}
	for _, u := range list {
		if err := open(); err != nil {
			t.Errorf("the control of %s: %v", u.says, err)
		}
		exec(u.do)
		var wrong *dblock.SchemaError
		if err := open(); !errors.As(err, &wrong) || len(wrong.Differences) != 1 ||
			!strings.HasPrefix(wrong.Differences[0], "table "+table+" has "+u.says) {
			t.Errorf("after %s: %v; want ErrSchema that says %s", u.do, err, u.says)
		}
		exec(u.undo)
	}
}

// RefusesBadSessions opens over connections that commit nothing by themselves, read what is not committed, or leave out rows.
// Only MySQL and MariaDB have them. On Postgres it opens over databases of other encodings.
func RefusesBadSessions(t *testing.T, kind devdb.Kind, dsn string, open func(dsn string) error) error {
	isolation := map[devdb.Kind]string{devdb.MySQL: "transaction_isolation", devdb.MariaDB: "tx_isolation"}[kind]
	if isolation == "" {
		return refusesOtherEncodings(t, dsn, open)
	}
	for setting, word := range map[string]string{
		"autocommit=0": "autocommit", isolation + "=%27READ-UNCOMMITTED%27": "READ UNCOMMITTED",
		"sql_select_limit=1000000": "sql_select_limit", "sql_select_limit=3": "sql_select_limit", "sql_select_limit=0": "sql_select_limit",
		"completion_type=1": "completion_type", "completion_type=2": "completion_type", "sql_safe_updates=1": "sql_safe_updates",
	} {
		if err := open(Appended(setting)(t, dsn)); !errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), word) {
			return fmt.Errorf("with %s: %w; want ErrUnsupported that names it", setting, err)
		}
	}
	return nil
}

// refusesOtherEncodings opens over databases without tables, which are refused for their encodings. The control is refused for its tables.
func refusesOtherEncodings(t *testing.T, dsn string, open func(dsn string) error) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	db, own := Connect(t, devdb.Postgres, dsn), strings.TrimPrefix(u.Path, "/")
	var wrong error
	for encoding, want := range map[string]error{"LATIN1": dblock.ErrUnsupported, "SQL_ASCII": dblock.ErrUnsupported, "UTF8": dblock.ErrSchema} {
		name := own + "_" + strings.ToLower(encoding)
		if _, err := db.ExecContext(t.Context(), `CREATE DATABASE "`+name+`" ENCODING '`+encoding+`' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`); err != nil {
			return err
		}
		u.Path = "/" + name
		if err := open(u.String()); !errors.Is(err, want) || want == dblock.ErrUnsupported && !strings.Contains(err.Error(), "is "+encoding+",") {
			wrong = errors.Join(wrong, fmt.Errorf("with the encoding %s: %w; want %w", encoding, err, want))
		}
		if _, err := db.ExecContext(t.Context(), `DROP DATABASE "`+name+`" WITH (FORCE)`); err != nil {
			return err
		}
	}
	return wrong
}
