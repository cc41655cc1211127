package postgres

import (
	"context"
	"strings"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/schema"
)

// InvalidIndex is the definition of an index that Postgres does not use: its build was cut off.
const InvalidIndex = "invalid"

// ObjectsQuery reads the objects of dblock's tables beside the version table of that qualified
// name. Every user may read them.
const ObjectsQuery = `WITH t AS (
    SELECT c.oid, c.relname::text AS name, c.relpersistence AS kept, c.relkind AS kind FROM pg_catalog.pg_class c
    WHERE c.relnamespace = (SELECT v.relnamespace FROM pg_catalog.pg_class v WHERE v.oid = pg_catalog.to_regclass($1::text)::oid)
      AND c.relkind IN ('r'::"char", 'p'::"char", 'v'::"char", 'm'::"char", 'f'::"char")
      AND pg_catalog.starts_with(c.relname::text, 'dblock_'::text)
)
SELECT 'column'::text, t.name, a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod)
    || CASE WHEN a.attcollation <> y.typcollation THEN ' collate '::text || o.collname::text ELSE ''::text END
    || CASE WHEN a.attnotnull THEN ' not null'::text ELSE ''::text END
    || CASE WHEN a.attidentity <> ''::"char" THEN ' identity'::text
       ELSE COALESCE(' default '::text || pg_catalog.pg_get_expr(d.adbin, d.adrelid), ''::text) END
FROM t JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
LEFT JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attnum > 0::smallint AND NOT a.attisdropped
UNION ALL
SELECT 'index'::text, t.name, c.relname::text, COALESCE(CASE WHEN NOT (i.indisvalid AND i.indisready) THEN 'invalid'::text ELSE
    CASE WHEN i.indisunique THEN 'unique '::text ELSE ''::text END || (
        SELECT pg_catalog.string_agg(pg_catalog.pg_get_indexdef(i.indexrelid, k, true), ', '::text ORDER BY k)
        FROM pg_catalog.generate_series(1, i.indnkeyatts::integer) k
    ) || CASE WHEN i.indpred IS NULL THEN ''::text ELSE ' partial'::text END
    || CASE WHEN i.indimmediate OR NOT i.indisunique THEN ''::text ELSE ' deferrable'::text END END, ''::text)
FROM t JOIN pg_catalog.pg_index i ON i.indrelid = t.oid JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
UNION ALL
SELECT 'check'::text, t.name, k.conname::text, COALESCE(pg_catalog.pg_get_constraintdef(k.oid), ''::text)
FROM t JOIN pg_catalog.pg_constraint k ON k.conrelid = t.oid WHERE k.contype = 'c'::"char"
UNION ALL
SELECT 'unsafe'::text, t.name, 'persistence'::text, CASE t.kept WHEN 'u'::"char" THEN
    'the persistence UNLOGGED, so a crash of the server empties it: ALTER TABLE '::text || t.oid::pg_catalog.regclass::text || ' SET LOGGED'::text
    ELSE 'the persistence TEMPORARY, so other sessions do not see it: name another schema'::text END
FROM t WHERE t.kept <> 'p'::"char"
UNION ALL
SELECT 'unsafe'::text, t.name, 'partitions'::text, CASE WHEN t.kind = 'p'::"char" THEN 'partitions'::text ELSE 'inheritance'::text END ||
    ', so a ctid names several of its rows: make it one table'::text
FROM t WHERE t.kind = 'p'::"char" OR EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = t.oid)
UNION ALL
SELECT 'unsafe'::text, t.name, 'row security'::text, 'row security that applies to this user: disable it, or give the user BYPASSRLS'::text
FROM t WHERE pg_catalog.row_security_active(t.oid)
UNION ALL
SELECT 'unsafe'::text, t.name, 'replica identity'::text,
    'REPLICA IDENTITY NOTHING and is published, so its rows can''t be updated: ALTER TABLE '::text || t.oid::pg_catalog.regclass::text
    || ' REPLICA IDENTITY DEFAULT'::text
FROM t JOIN pg_catalog.pg_class c ON c.oid = t.oid
WHERE c.relreplident = 'n'::"char" AND EXISTS (
    SELECT FROM pg_catalog.pg_publication p, LATERAL pg_catalog.pg_get_publication_tables(p.pubname::text) g
    WHERE (p.pubupdate OR p.pubdelete) AND g.relid = t.oid)
UNION ALL
SELECT 'unsafe'::text, t.name, 'trigger '::text || g.tgname::text, pg_catalog.format(
    'the trigger "%s", which runs before each row is written and can skip the row: make it AFTER'::text, g.tgname)
FROM t JOIN pg_catalog.pg_trigger g ON g.tgrelid = t.oid
WHERE NOT g.tgisinternal AND g.tgenabled NOT IN ('D'::"char", 'R'::"char") AND (g.tgtype::integer & 3) = 3
UNION ALL
SELECT 'unsafe'::text, t.name, 'rule '::text || w.rulename::text, pg_catalog.format(
    'the rule "%s": drop it'::text, w.rulename)
FROM t JOIN pg_catalog.pg_rewrite w ON w.ev_class = t.oid
WHERE w.ev_type <> '1'::"char" AND w.ev_enabled <> 'D'::"char"`

// spelling is what settings of the session add to a definition. A CHECK has NO INHERIT for tables
// that inherit, which are refused.
var spelling = strings.NewReplacer(`"`, "", " NO INHERIT", "")

// Rows are what ObjectsQuery returns, by any driver.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

// ReadObjects collects the rows of ObjectsQuery.
func ReadObjects(rows Rows) (schema.Shape, error) {
	shape := schema.Shape{}
	for rows.Next() {
		var o schema.Object
		var is string
		if err := rows.Scan(&o.Kind, &o.Table, &o.Name, &is); err != nil {
			return nil, err
		}
		if o.Kind != schema.Unsafe {
			is = spelling.Replace(is)
		}
		if o.Table != schema.VersionTable {
			shape[o] = is
		}
	}
	return shape, rows.Err()
}

// SchemaDifferences says what dblock's tables in the schema of that name lack of their version, or
// have otherwise.
func SchemaDifferences(ctx context.Context, db pgdb.DBTX, name string, version int64) ([]string, error) {
	rows, err := db.Query(ctx, ObjectsQuery, NewSchema(name).SQL(schema.VersionTable))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	have, err := ReadObjects(rows)
	if err != nil {
		return nil, err
	}
	return schema.Expected(schema.Postgres, version).Differences(have), nil
}
