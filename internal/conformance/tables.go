package conformance

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// isDifferent reports whether an error says that tables of the right version lack an object.
func isDifferent(err error, object string) bool {
	var wrong *dblock.SchemaError
	return errors.As(err, &wrong) && wrong.Have == wrong.Want && errors.Is(err, dblock.ErrSchema) &&
		strings.Contains(strings.Join(wrong.Differences, "\n"), object+" is missing") && strings.Contains(err.Error(), "dblock migrate up")
}

// refusesBadSessions opens over connections that commit nothing by themselves, read what is not committed, or leave out rows.
// Only MySQL and MariaDB have them. On Postgres it opens over databases of other encodings.
func refusesBadSessions(t *testing.T, kind devdb.Kind, dsn string, open func(dsn string) error) error {
	isolation := map[devdb.Kind]string{devdb.MySQL: "transaction_isolation", devdb.MariaDB: "tx_isolation"}[kind]
	if isolation == "" {
		return refusesOtherEncodings(t, dsn, open)
	}
	for setting, word := range map[string]string{
		"autocommit=0": "autocommit", isolation + "=%27READ-UNCOMMITTED%27": "READ UNCOMMITTED",
		"sql_select_limit=1000000": "sql_select_limit", "sql_select_limit=3": "sql_select_limit", "sql_select_limit=0": "sql_select_limit",
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
	db, own := connect(t, devdb.Postgres, dsn), strings.TrimPrefix(u.Path, "/")
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

// leasesCheckTheTables: a Locker is made only over tables that are whole, and over connections that commit.
func leasesCheckTheTables(t *testing.T, v *vault) {
	open := func(dsn string) error {
		l, closePool, err := v.e.Open(t.Context(), dsn, LeaseOptions{})
		if err == nil {
			err = l.Close(t.Context())
			closePool()
		}
		return err
	}
	if err := refusesBadSessions(t, v.e.Kind, v.dsn, open); err != nil {
		t.Error(err)
	}
	if err := open(v.dsn); err != nil {
		t.Errorf("the control: %v", err)
	}
	drop := "DROP INDEX dblock_queue_dead_when"
	if v.e.Kind != devdb.Postgres {
		drop += " ON dblock_queue_dead"
	}
	v.exec(t, drop)
	if err := open(v.dsn); !isDifferent(err, "dblock_queue_dead.dblock_queue_dead_when") {
		t.Errorf("an index is missing: %v", err)
	}
	v.exec(t, "ALTER TABLE dblock_lease DROP COLUMN shared")
	if err := open(v.dsn); !isDifferent(err, "dblock_lease.shared") {
		t.Errorf("a column is missing: %v", err)
	}
}
