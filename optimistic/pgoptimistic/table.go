package pgoptimistic

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/rowlock"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
	"github.com/dblock-go/dblock/optimistic/internal/link"
)

// Table is optimistic.Table on Postgres.
type Table[V any] = optimistic.Table[V, DB]

// NewTable describes a table: its name, which may be qualified ("shop.account"), its key, a column
// with a unique index of its own such as the primary key, and its version. Names are taken as they
// are, and may contain anything but, in the table's, a further dot. Nothing is sent: Table.Check
// asks the server.
func NewTable[V any](table, key string, version optimistic.Version[V]) (*Table[V], error) {
	return link.NewTable[V, DB](dialect{}, table, key, version)
}

// dialect is the driver for Postgres.
type dialect struct{}

var _ driver.Driver[DB] = dialect{}

func (dialect) Dialect() driver.Dialect {
	return driver.Dialect{
		Quote: `"`, Fold: func(name string) string { return name },
		Timestamp: "TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()", UUID: "UUID NOT NULL DEFAULT gen_random_uuid()",
		MissesRows: true,
	}
}

// columns reads all facts of a table at once. The type of a column is that below its domains, with
// the modifier that the innermost domain gives it. The types are named without a length or a
// precision: a cast to those would cut values. The declared type is the domain itself.
const columns = `WITH RECURSIVE base AS (
    SELECT a.attrelid, a.attnum, a.atttypid AS type, a.atttypmod AS modifier
    FROM pg_attribute a
    WHERE a.attrelid = pg_catalog.to_regclass($1::text)::oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT base.attrelid, base.attnum, domain.typbasetype, domain.typtypmod
    FROM base
    JOIN pg_type domain ON domain.oid = base.type AND domain.typtype = 'd'
)
SELECT a.attname::text, format_type(base.type, -1), format_type(a.atttypid, -1), format_type(c.reltype, -1), t.typname::text, t.typtype::text,
    a.attnotnull, base.modifier, base.type::bigint >= 16384, t.typcategory = 'A',
    CASE WHEN t.typcategory = 'A' OR t.typtype IN ('c', 'e', 'm', 'r') THEN 'pg_catalog'::text ELSE pg_catalog.quote_ident(n.nspname::text) END,
    EXISTS (
        SELECT 1 FROM pg_index i
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
            AND i.indexprs IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum),
    c.relkind::text, c.relkind <> 'p' AND EXISTS (SELECT 1 FROM pg_inherits h WHERE h.inhparent = c.oid)
FROM base
JOIN pg_type t ON t.oid = base.type AND t.typtype <> 'd'
JOIN pg_namespace n ON n.oid = t.typnamespace
JOIN pg_attribute a ON a.attrelid = base.attrelid AND a.attnum = base.attnum
JOIN pg_class c ON c.oid = base.attrelid`

func (dialect) Inspect(ctx context.Context, db DB, s driver.Spec) (driver.Facts, error) {
	f := driver.Facts{All: map[string]driver.Column{}}
	rows, err := db.Query(ctx, columns, postgres.CheckPath{}, s.From)
	if err != nil {
		return f, err
	}
	defer rows.Close()
	for rows.Next() {
		var c driver.Column
		var base, kind, relation string
		var notNull, unique, parent bool
		var modifier int32
		if err := rows.Scan(&c.Name, &c.Type, &c.Declared, &f.Rows, &base, &kind, &notNull, &modifier, &c.Own, &c.List, &c.Home, &unique,
			&relation, &parent); err != nil {
			return f, err
		}
		c.Nullable = !notNull
		if c.Class, c.Max = classes[base], greatest[base]; kind == "e" { // an enum
			c.Class, c.Max = driver.Text, 0
		}
		c.Padded, c.UUID = base == "bpchar", c.Class == driver.Identifier
		if c.Precision = 6; modifier >= 0 {
			c.Precision = int(modifier)
		}
		if unique && c.Name == s.Key {
			f.Index = c.Name
		}
		switch {
		case relation != "r" && relation != "p":
			f.Odd = "is no table: a view or a foreign table has no unique index"
		case parent:
			f.Odd = "has tables that inherit from it, on whose rows its unique index has no hold"
		}
		f.All[c.Name] = c
	}
	return f, rows.Err()
}

// classes are those of types. Types that are not here are compared inexactly.
var classes = map[string]driver.Class{
	"int2": driver.Integer, "int4": driver.Integer, "int8": driver.Integer, "numeric": driver.Decimal, "bool": driver.Boolean,
	"text": driver.Text, "varchar": driver.Text, "bpchar": driver.Text, "citext": driver.Text, "bytea": driver.Bytes,
	"date": driver.Date, "timestamp": driver.DateTime, "timestamptz": driver.Instant, "uuid": driver.Identifier,
}

// greatest are the greatest values of integers.
var greatest = map[string]uint64{"int2": 1<<15 - 1, "int4": 1<<31 - 1, "int8": 1<<63 - 1}

func (dialect) Twins(ctx context.Context, db DB, p *driver.Plan, key any) (n int64, err error) {
	text := fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s AS t WHERE %s LIMIT 2) AS twins", p.From, hasKey(p, "$1"))
	err = db.QueryRow(ctx, text, key).Scan(&n)
	return n, err
}

// Key leaves a key as it is, but for integers: the server takes only what has the column's type.
func (dialect) Key(_ driver.Column, key any) (any, error) { return plain(key), nil }

// Value leaves a value as it is, for the same reason; but UUIDs and times are texts. If pgx does
// not ask for the types of parameters, it would send nothing, or a moment of which the session's
// time zone makes the date.
func (dialect) Value(c driver.Column, value any) (any, error) {
	switch v := value.(type) {
	case [16]byte:
		if c.Class == driver.Identifier {
			return driver.FormatUUID(v), nil
		}
	case time.Time:
		switch c.Class {
		case driver.Date:
			return v.Format(time.DateOnly), nil
		case driver.DateTime:
			return v.Format("2006-01-02 15:04:05.999999"), nil
		case driver.Instant:
			return instant(v.UnixMicro()), nil
		}
	}
	return value, nil
}

func quoted(name string) string {
	name, _ = rowlock.Name("column", name, `"`) // it was checked
	return name
}

// Read: in a transaction that sees rows as they were the server has refused a write of one that is
// not, so that nothing is later.
func (dialect) Read(ctx context.Context, db DB, p *driver.Plan, key any, _ bool) (r driver.Raw, exists bool, err error) {
	text := fmt.Sprintf("SELECT %s FROM %s AS t WHERE %s AND %s", strings.Join(read(p), ", "), p.From, hasKey(p, "$1"), unaltered(p, nil))
	rows, err := db.Query(ctx, text, key)
	if err != nil {
		return r, false, marked(err)
	}
	defer rows.Close()
	if exists = rows.Next(); exists {
		if r, err = version(p, rows); err != nil {
			return r, false, err
		}
	}
	rows.Close()
	return r, exists, marked(rows.Err())
}
