package migrations_test

import (
	"slices"
	"strings"

	"github.com/dblock-go/dblock/migrations"
)

// What the servers themselves say of all tables: columns with their defaults, indexes and
// constraints with their texts.
const (
	dumpMySQL = `SELECT CONCAT_WS(' ', TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COALESCE(COLUMN_DEFAULT, 'none'), EXTRA)
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'dblock|_%' ESCAPE '|'
UNION ALL SELECT CONCAT_WS(' ', TABLE_NAME, 'index', INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, NON_UNIQUE)
FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'dblock|_%' ESCAPE '|'
UNION ALL SELECT CONCAT_WS(' ', t.TABLE_NAME, t.CONSTRAINT_TYPE, t.CONSTRAINT_NAME, c.CHECK_CLAUSE)
FROM information_schema.TABLE_CONSTRAINTS t LEFT JOIN information_schema.CHECK_CONSTRAINTS c
    ON c.CONSTRAINT_SCHEMA = t.CONSTRAINT_SCHEMA AND c.CONSTRAINT_NAME = t.CONSTRAINT_NAME
WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME LIKE 'dblock|_%' ESCAPE '|'`

	dumpPostgres = `SELECT concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
    a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid))
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname LIKE 'dblock\_%' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT concat_ws(' ', c.relname, c.relkind, c.reloptions) FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relname LIKE 'dblock\_%'
UNION ALL SELECT concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relname LIKE 'dblock\_%'
UNION ALL SELECT concat_ws(' ', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid)) FROM pg_constraint k
WHERE k.connamespace = current_schema()::regnamespace AND k.conrelid::regclass::text LIKE 'dblock\_%'`
)

// dump is all that the server knows of dblock's tables, in order.
func (e env) dump() []string {
	e.Helper()
	if e.engine == migrations.Postgres {
		return e.strings(dumpPostgres)
	}
	return e.strings(dumpMySQL)
}

// wantDump compares what the server knows with what it knew.
func (e env) wantDump(what string, want []string) {
	e.Helper()
	got := e.dump()
	if slices.Equal(got, want) {
		return
	}
	only := func(list, other []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) }), "\n\t")
	}
	e.Errorf("%s: not there:\n\t%s\nand there instead:\n\t%s", what, only(want, got), only(got, want))
}
