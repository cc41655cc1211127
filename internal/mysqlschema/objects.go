package mysqlschema

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/internal/mysqltext"
	"github.com/dblock-go/dblock/internal/schema"
)

// objectsIn reads the objects of dblock's tables, an index column by column. The schema is an expression. Servers that fold
// names keep them in lower case.
func objectsIn(database string) string {
	where := "TABLE_SCHEMA = IF(@@lower_case_table_names = 1, LOWER(" + database + "), " + database + ") AND TABLE_NAME LIKE 'dblock|_%' ESCAPE '|'"
	return `SELECT 'column', TABLE_NAME, COLUMN_NAME, 0, CONCAT(DATA_TYPE,
    IF(COALESCE(CHARACTER_MAXIMUM_LENGTH, NULLIF(DATETIME_PRECISION, 0)) IS NULL, '',
        CONCAT('(', COALESCE(CHARACTER_MAXIMUM_LENGTH, DATETIME_PRECISION), ')')),
    IF(IS_NULLABLE = 'YES', '', ' not null'), IF(NULLIF(COLUMN_DEFAULT, 'NULL') IS NULL, '', ' default'),
    IF(EXTRA LIKE '%auto_increment%', ' auto_increment', ''))
FROM information_schema.COLUMNS WHERE ` + where + `
UNION ALL SELECT 'index', TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX, CONCAT(IF(NON_UNIQUE, '', 'unique '), COALESCE(COLUMN_NAME, 'expression'))
FROM information_schema.STATISTICS WHERE ` + where + `
UNION ALL SELECT IF(CONSTRAINT_TYPE = 'CHECK', 'check', 'other'), TABLE_NAME, CONSTRAINT_NAME, 0, 'valid'
FROM information_schema.TABLE_CONSTRAINTS WHERE ` + where + `
UNION ALL SELECT 'unsafe', TABLE_NAME, 'engine', 0, CONCAT('the storage engine ', ENGINE,
    ' instead of InnoDB: ALTER TABLE ', TABLE_NAME, ' ENGINE = InnoDB')
FROM information_schema.TABLES WHERE ` + where + ` AND TABLE_TYPE <> 'VIEW' AND ENGINE <> 'InnoDB'
LIMIT 1000000` // else a session's sql_select_limit bounds it
}

// Objects reads what dblock's tables have that are in the database of that name; "" is the connection's own.
func Objects(ctx context.Context, conn mysqltext.Conn, name string) (schema.Shape, error) {
	database, args := "DATABASE()", []any(nil)
	if name != "" {
		database, args = "_utf8mb4 ?", slices.Repeat([]any{[]byte(name)}, 8)
	}
	rows, err := mysqltext.Inline{Conn: conn}.QueryContext(ctx, objectsIn(database), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	type part struct {
		seq int
		is  string
	}
	parts := map[schema.Object][]part{}
	for rows.Next() {
		var o schema.Object
		var p part
		if err := rows.Scan(&o.Kind, &o.Table, &o.Name, &p.seq, &p.is); err != nil {
			return nil, err
		}
		if o.Table != schema.VersionTable {
			parts[o] = append(parts[o], p)
		}
	}
	shape := schema.Shape{}
	for o, list := range parts {
		slices.SortFunc(list, func(a, b part) int { return a.seq - b.seq })
		is := list[0].is
		for _, p := range list[1:] {
			is += ", " + strings.TrimPrefix(p.is, "unique ")
		}
		shape[o] = is
	}
	return shape, rows.Err()
}

// Differences says what dblock's tables lack of their version, or have otherwise. What the user may not see is not judged.
func Differences(ctx context.Context, conn mysqltext.Conn, name string, version int64) ([]string, error) {
	have, err := Objects(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	want := schema.Expected(schema.MySQL, version)
	if err := Forget(ctx, conn, name, want, have); err != nil {
		return nil, err
	}
	return want.Differences(have), nil
}

// Forget deletes from want what may be there and the user may not see.
func Forget(ctx context.Context, conn mysqltext.Conn, name string, want, have schema.Shape) (err error) {
	unsure := map[string][]string{} // tables with columns that are not seen
	for _, o := range want.Missing(have) {
		if o.Kind == schema.Column {
			unsure[o.Table] = append(unsure[o.Table], schema.QuoteMySQL(o.Name))
		}
	}
	gone := map[string]bool{}
	for table, columns := range unsure {
		if gone[table], err = confirm(ctx, On(conn, name), table, columns); err != nil {
			return err
		}
	}
	maps.DeleteFunc(want, func(o schema.Object, _ string) bool { return hidden(o, have, unsure, gone) })
	return nil
}

// hidden reports whether an object may be there and the user lacks the privilege to see it. Each table has a primary key:
// a user that does not see it sees no index, or no constraint.
func hidden(o schema.Object, have schema.Shape, unsure map[string][]string, gone map[string]bool) bool {
	if unsure[o.Table] != nil && !gone[o.Table] {
		return true
	}
	switch primary := (schema.Object{Table: o.Table, Name: "PRIMARY"}); o.Kind {
	case schema.Index:
		primary.Kind = schema.Index
		return have.HasTable(o.Table) && !have.Has(primary)
	case schema.Limit:
		primary.Kind = schema.Other
		return have.HasTable(o.Table) && !have.Has(primary)
	}
	return false
}

// confirm reports whether the server says that the table or a column does not exist. To a user without a privilege it says
// that instead.
func confirm(ctx context.Context, on mysqldb.DBTX, table string, columns []string) (gone bool, err error) {
	rows, err := on.QueryContext(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+table+" LIMIT 0")
	if err == nil {
		return false, rows.Close()
	}
	switch mysqlfault.Number(err) {
	case mysqlfault.NoSuchTable, mysqlfault.NoSuchColumn:
		return true, nil
	case 0:
		return false, err
	}
	return false, nil
}
