package migrations

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
)

// unfinished are the target's migrations without what a run that was interrupted has done already. On MySQL each
// statement stands by itself, and that a column or an index is there, or is not, can't be told to ALTER TABLE.
func (t *target) unfinished(ctx context.Context) (fs.FS, error) {
	files := t.engine.files("")
	if t.engine == MySQL {
		there, err := t.columns(ctx)
		if err != nil {
			return nil, err
		}
		files = rewritten{files, func(sql string) string { return withoutDone(sql, there) }}
	}
	return rewritten{files, t.engine.qualify(t.schema)}, nil
}

// altered matches a statement that adds or drops a column, or an index; where it does more, that is of its first.
var altered = regexp.MustCompile(`(?m)^ALTER TABLE (\w+) (ADD|DROP) (?:COLUMN|INDEX|KEY) (\w+)[^;]*;$`)

// withoutDone has nothing done where that is there which is to be added, or is not which is to be dropped.
func withoutDone(sql string, there map[string]bool) string {
	return altered.ReplaceAllStringFunc(sql, func(statement string) string {
		m := altered.FindStringSubmatch(statement)
		table, add, name := m[1], m[2] == "ADD", m[3]
		if exists := there[table]; exists && add == there[table+"."+name] {
			return "DO 0;"
		}
		return statement
	})
}

// columns are dblock's tables, and their columns and indexes, as "table" and "table.name".
func (t *target) columns(ctx context.Context) (map[string]bool, error) {
	rows, err := t.db.QueryContext(ctx, `SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS
		WHERE TABLE_SCHEMA = ? AND TABLE_NAME LIKE 'dblock%'
		UNION SELECT TABLE_NAME, INDEX_NAME FROM information_schema.STATISTICS
		WHERE TABLE_SCHEMA = ? AND TABLE_NAME LIKE 'dblock%'`, t.schema, t.schema)
	if err != nil {
		return nil, fmt.Errorf("dblock: looking for tables: %w", err)
	}
	defer func() { _ = rows.Close() }() // was only read
	there := make(map[string]bool)
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, fmt.Errorf("dblock: looking for tables: %w", err)
		}
		there[table], there[table+"."+column] = true, true
	}
	return there, rows.Err()
}
