package mysqloptimistic

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/rowlock"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
	"github.com/dblock-go/dblock/optimistic/internal/link"
)

// Table is optimistic.Table on MySQL and MariaDB.
type Table[V any] = optimistic.Table[V, DB]

// NewTable describes a table: its name, which may be qualified ("shop.account"), its key, a column
// of integers, texts or bytes with a unique index of its own such as the primary key, and its
// version. Names are taken as they are, and may contain anything but, in the table's, a further
// dot. Nothing is sent: Table.Check asks the server.
//
// Neither server returns what an UPDATE has written. An Int and a UUID are known beforehand, so
// that a write is one statement. A Timestamp takes one more, which reads the server's clock. So
// does a write of Table.Any, which reads the version first; another writer in between makes it
// begin again. Triggers may write other tables as they like, but must not change the version.
func NewTable[V any](table, key string, version optimistic.Version[V]) (*Table[V], error) {
	return link.NewTable[V, DB](dialect{}, table, key, version)
}

// dialect is the driver for MySQL and MariaDB.
type dialect struct{}

var _ driver.Driver[DB] = dialect{}

func (dialect) Dialect() driver.Dialect {
	return driver.Dialect{
		Quote: "`", Fold: strings.ToLower, // names of columns are compared without regard to case
		Timestamp: "DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))", UUID: "BINARY(16) NOT NULL",
	}
}

// Inspect asks by SHOW, which finds what a statement would: temporary tables too, and in whatever
// case the name is written.
func (dialect) Inspect(ctx context.Context, db DB, s driver.Spec) (driver.Facts, error) {
	f := driver.Facts{All: map[string]driver.Column{}}
	if _, err := poolOf(ctx, db); err != nil {
		return f, err
	}
	lines, err := mysql.ShowOf(ctx, db, "SHOW COLUMNS FROM "+s.From)
	if isMissing(err) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	for _, line := range lines {
		c := columnOf(line)
		f.All[strings.ToLower(c.Name)] = c
	}
	if s.Kind == driver.Columns {
		if f.Location, err = locationOf(ctx, db, s, f.All); err != nil {
			return f, err
		}
	}
	table, err := mysql.InspectTable(ctx, db, s.From)
	if err != nil {
		return f, err
	}
	f.Odd = table.RowLocks(s.Table)
	lines, err = mysql.ShowOf(ctx, db, "SHOW INDEX FROM "+s.From)
	if err != nil {
		return f, err
	}
	f.Index = uniqueIndex(lines, s.Key)
	lines, err = mysql.ShowOf(ctx, db, "SELECT @@max_allowed_packet AS bytes LIMIT 1")
	if err == nil && len(lines) == 1 {
		f.MaxText, err = strconv.Atoi(lines[0]["bytes"])
	}
	return f, err
}

// locationOf returns the driver's location (loc) for a table with columns of times. Only parseTime
// shows it. Without parseTime it has to be UTC, the default.
func locationOf(ctx context.Context, db DB, s driver.Spec, all map[string]driver.Column) (*time.Location, error) {
	times := slices.IndexFunc(s.Columns, func(name string) bool {
		class := all[strings.ToLower(name)].Class
		return class == driver.Date || class == driver.DateTime
	})
	if times < 0 {
		return time.UTC, nil
	}
	var parsed any
	var sent string
	_, err := first(ctx, db, "SELECT TIMESTAMP'2000-01-01 00:00:00', CONCAT(CAST(? AS CHAR(19)), CAST(? AS CHAR(19))) LIMIT 1",
		[]any{time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC), time.Date(2000, 7, 1, 0, 0, 1, 0, time.UTC)},
		func(rows *mysql.Rows) error { return rows.Scan(&parsed, &sent) })
	if at, is := parsed.(time.Time); is {
		return at.Location(), err
	}
	if sent != "2000-01-01 00:00:012000-07-01 00:00:01" && err == nil {
		return nil, attempt.Invalid("version", "the column %q of %s holds times, and the DSN has a loc without parseTime: "+
			"add parseTime=true to the DSN, or leave out loc", s.Columns[times], s.Table)
	}
	return time.UTC, err
}

// uniqueIndex is the name of one that has the whole of the key for its only column, the primary key
// before others.
func uniqueIndex(lines []map[string]string, key string) (index string) {
	parts := map[string]int{}
	for _, line := range lines {
		parts[line["Key_name"]]++
	}
	for _, line := range lines {
		name := line["Key_name"]
		hidden := line["Visible"] == "NO" || line["Ignored"] == "YES"
		if parts[name] != 1 || line["Non_unique"] != "0" || line["Sub_part"] != "" || hidden || !strings.EqualFold(line["Column_name"], key) {
			continue
		}
		if index == "" || strings.EqualFold(name, "PRIMARY") {
			index = name
		}
	}
	return index
}

func (dialect) Twins(ctx context.Context, db DB, p *driver.Plan, key any) (n int64, err error) {
	text := fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM %s WHERE %s = ? LIMIT 2) AS twins LIMIT 1", p.From, quoted(p.Key))
	_, err = first(ctx, db, text, []any{key}, func(rows *mysql.Rows) error { return rows.Scan(&n) })
	return n, err
}

func quoted(name string) string {
	name, _ = rowlock.Name("column", name, "`") // it was checked
	return name
}

// Read locks the row to read the latest: else a transaction at REPEATABLE READ would read it as it
// was at its beginning.
func (dialect) Read(ctx context.Context, db DB, p *driver.Plan, key any, latest bool) (r driver.Raw, exists bool, err error) {
	if _, err := poolOf(ctx, db); err != nil {
		return r, false, err
	}
	text := fmt.Sprintf("SELECT %s FROM %s WHERE %s = ? LIMIT %s", strings.Join(read(p), ", "), p.From, quoted(p.Key), mysql.AllRows)
	if latest {
		text += " LOCK IN SHARE MODE"
	}
	exists, err = first(ctx, db, text, []any{key}, func(rows *mysql.Rows) (err error) {
		r, err = scan(rows, p)
		return err
	})
	return r, exists, err
}
