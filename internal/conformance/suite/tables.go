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
