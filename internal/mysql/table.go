package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// Show runs a SHOW or an EXPLAIN and returns its rows by the names of their columns, of which
// servers have different ones. The DSN's columnsWithAlias puts a table's alias before a name: it is
// removed. NULL is the empty string.
func Show(ctx context.Context, db Querier, text string) (lines []map[string]string, err error) {
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	return named(rows)
}

// ShowOf is Show with values or names of the host's own: see Query.
func ShowOf(ctx context.Context, db Conn, text string, args ...any) (lines []map[string]string, err error) {
	rows, err := Query(ctx, db, text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	return named(rows.Rows)
}

// named reads rows by the names of their columns.
func named(rows *sql.Rows) (lines []map[string]string, err error) {
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, places := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		places[i] = &values[i]
		names[i] = names[i][strings.LastIndexByte(names[i], '.')+1:]
	}
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return nil, err
		}
		line := make(map[string]string, len(names))
		for i, name := range names {
			line[name] = values[i].String
		}
		lines = append(lines, line)
	}
	return lines, rows.Err()
}

// Table describes a table that a statement would find.
type Table struct {
	Engine      string // the storage engine; empty for a view
	View        bool
	Partitioned bool
	Columns     []string // those that are stored, short ones first
	Spatial     []string // spatial indexes
}

// InspectTable reads SHOW CREATE TABLE, which finds temporary tables too. from is the table's name,
// in backticks.
//
// Errors: the driver's.
func InspectTable(ctx context.Context, db Conn, from string) (Table, error) {
	lines, err := ShowOf(ctx, db, "SHOW CREATE TABLE "+from)
	if err != nil {
		return Table{}, err
	}
	var t Table
	if len(lines) == 1 {
		_, t.View = lines[0]["View"]
		t.read(lines[0]["Create Table"])
	}
	if t.View || t.Engine != "" {
		return t, nil
	}
	// MariaDB's sql_mode NO_TABLE_OPTIONS hides the engine.
	lines, err = ShowOf(ctx, db, "SELECT ENGINE AS named FROM information_schema.TABLES"+thisTable+" LIMIT 1", names(from)...)
	if err == nil && len(lines) == 1 {
		t.Engine = lines[0]["named"]
	}
	return t, err
}

// Partition is a partition of a table that has no parts of its own.
type Partition struct {
	Name   string
	InPlan string // as EXPLAIN names it
}

// Partitions reads those of a table, in the order of its definition. from is the table's name, in
// backticks.
//
// Errors: the driver's.
func Partitions(ctx context.Context, db Conn, from string) ([]Partition, error) {
	lines, err := ShowOf(ctx, db, "SELECT COALESCE(SUBPARTITION_NAME, PARTITION_NAME) AS named,"+
		" CONCAT_WS('_', PARTITION_NAME, SUBPARTITION_NAME) AS planned FROM information_schema.PARTITIONS"+thisTable+
		" ORDER BY PARTITION_ORDINAL_POSITION, SUBPARTITION_ORDINAL_POSITION LIMIT "+AllRows, names(from)...)
	partitions := make([]Partition, len(lines))
	for i, line := range lines {
		partitions[i] = Partition{line["named"], line["planned"]}
	}
	return partitions, err
}

// thisTable is a condition on tables of the information schema, whose parameters are names.
const thisTable = " WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?"

// names are those of a table's database and of the table. Without a database the first is empty.
func names(from string) []any {
	database, table, qualified := strings.Cut(from, "`.`")
	if !qualified {
		database, table = "", from
	}
	return []any{unquoted(database), unquoted(table)}
}

func unquoted(name string) string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(name, "`"), "`"), "``", "`")
}

// read takes a CREATE TABLE apart: a line a column, then a line a key, then one of the table's
// options, then its partitions. Line breaks within comments are escaped.
func (t *Table) read(create string) {
	var long []string
	for line := range strings.Lines(create) {
		if options, ok := strings.CutPrefix(line, ") ENGINE="); ok && t.Engine == "" {
			t.Engine, _, _ = strings.Cut(strings.TrimSpace(options), " ")
			continue
		}
		if t.Engine != "" {
			t.Partitioned = t.Partitioned || strings.HasPrefix(strings.TrimLeft(line, " /*!0123456789"), "PARTITION BY")
			continue
		}
		if key, ok := strings.CutPrefix(line, "  SPATIAL KEY "); ok {
			if name, _, ok := column("  " + key); ok {
				t.Spatial = append(t.Spatial, name)
			}
			continue
		}
		name, definition, ok := column(line)
		switch {
		case !ok || strings.Contains(definition, " GENERATED ALWAYS "):
		case isLong(definition):
			long = append(long, name)
		default:
			t.Columns = append(t.Columns, name)
		}
	}
	t.Columns = append(t.Columns, long...)
}

// column reads a line of a column: two blanks, a quoted name and its definition. Keys begin with a
// word.
func column(line string) (name, definition string, ok bool) {
	rest, ok := strings.CutPrefix(line, "  ")
	if !ok || rest == "" || rest[0] != '`' && rest[0] != '"' {
		return "", "", false
	}
	quote := rest[:1]
	name, definition, ok = strings.Cut(strings.ReplaceAll(rest[1:], quote+quote, "\x00"), quote+" ")
	return strings.ReplaceAll(name, "\x00", quote), definition, ok
}

// isLong reports that a column's values may be long, and stand outside of their row.
func isLong(definition string) bool {
	kind, _, _ := strings.Cut(definition, " ")
	for _, long := range []string{"text", "blob", "json", "geometry", "vector"} {
		if strings.Contains(kind, long) {
			return true
		}
	}
	return false
}

// RowLocks says why rows of the table can't be locked. Empty: they can.
func (t Table) RowLocks(name string) string {
	switch {
	case t.View:
		return "is a view, whose rows are those of other tables: name the table itself"
	case !strings.EqualFold(t.Engine, "InnoDB"):
		return fmt.Sprintf("is stored by the engine %s, which is not known to lock rows or to roll them back: ALTER TABLE %s ENGINE=InnoDB",
			t.Engine, name)
	}
	return ""
}
