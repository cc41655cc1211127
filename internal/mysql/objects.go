package mysql

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/schema"
)

// objectsIn reads the objects of dblock's tables, an index column by column. The schema is an
// expression. Servers that fold names keep them in lower case.
func objectsIn(database string) string {
	in := "_SCHEMA = IF(@@lower_case_table_names = 1, LOWER(" + database + "), " + database + ")"
	const ours = " LIKE 'dblock|_%' ESCAPE '|'"
	where := "TABLE" + in + " AND TABLE_NAME" + ours
	return `SELECT 'column', TABLE_NAME, COLUMN_NAME, 0, CONCAT(DATA_TYPE,
    IF(COALESCE(CHARACTER_MAXIMUM_LENGTH, NULLIF(DATETIME_PRECISION, 0)) IS NULL, '',
        CONCAT('(', COALESCE(CHARACTER_MAXIMUM_LENGTH, DATETIME_PRECISION), ')')),
    IF(IS_NULLABLE = 'YES', '', ' not null'), IF(COALESCE(COLUMN_DEFAULT, 'NULL') = 'NULL', '', CONCAT(' default ', COLUMN_DEFAULT)),
    IF(EXTRA LIKE '%auto_increment%', ' auto_increment', ''), IF(EXTRA LIKE '%on update%', ' on update', ''))
FROM information_schema.COLUMNS WHERE ` + where + `
UNION ALL SELECT 'index', TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX, CONCAT(IF(NON_UNIQUE, '', 'unique '), COALESCE(COLUMN_NAME, 'expression'),
    IF(SUB_PART IS NULL, '', CONCAT('(', SUB_PART, ')')))
FROM information_schema.STATISTICS WHERE ` + where + `
UNION ALL SELECT 'check', TABLE_NAME, CONSTRAINT_NAME, 0, CONCAT(CHECK_CLAUSE /*!80016 , IF(ENFORCED = 'NO', ', but not enforced', '') */)
FROM information_schema.CHECK_CONSTRAINTS /*!80016 JOIN information_schema.TABLE_CONSTRAINTS USING (CONSTRAINT_SCHEMA, CONSTRAINT_NAME) */
WHERE CONSTRAINT` + in + ` AND TABLE_NAME` + ours + ` /*!80016 AND CONSTRAINT_TYPE = 'CHECK' */
UNION ALL SELECT 'unsafe', TABLE_NAME, 'engine', 0, IF(TABLE_TYPE = 'VIEW', 'a view in its place, whose keys are not known: drop it',
    CONCAT('the storage engine ', ENGINE, ' instead of InnoDB: ALTER TABLE ', TABLE_NAME, ' ENGINE = InnoDB'))
FROM information_schema.TABLES WHERE ` + where + ` AND (TABLE_TYPE = 'VIEW' OR ENGINE <> 'InnoDB')
UNION ALL SELECT 'unsafe', EVENT_OBJECT_TABLE, CONCAT('trigger ', TRIGGER_NAME), 0, CONCAT('the trigger "', TRIGGER_NAME,
    '", which runs before each row is written and can change the row: make it AFTER')
FROM information_schema.TRIGGERS WHERE TRIGGER` + in + ` AND EVENT_OBJECT_TABLE` + ours + ` AND ACTION_TIMING = 'BEFORE'
LIMIT 1000000` // else a session's sql_select_limit bounds it
}

// keyed are the tables into which dblock inserts with IGNORE or ON DUPLICATE KEY UPDATE. Such an
// insert takes a row that any unique index finds for the one of its key.
var keyed = []string{
	"dblock_stock", "dblock_quota", "dblock_lease", "dblock_lease_waiter", "dblock_fence", "dblock_semaphore", "dblock_permit",
	"dblock_session_key", "dblock_queue", "dblock_queue_cancel", "dblock_queue_key", "dblock_queue_unique", "dblock_queue_history",
}

// Objects reads what dblock's tables have that are in the database of that name; "" is the
// connection's own.
func Objects(ctx context.Context, conn Conn, name string) (schema.Shape, error) {
	database, args := "DATABASE()", []any(nil)
	if name != "" {
		database, args = "_utf8mb4 ?", slices.Repeat([]any{[]byte(name)}, 10)
	}
	rows, err := Inline{Conn: conn}.QueryContext(ctx, objectsIn(database), args...)
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
	shape, known := schema.Shape{}, schema.Expected(schema.MySQL, schema.Version)
	for o, list := range parts {
		slices.SortFunc(list, func(a, b part) int { return a.seq - b.seq })
		is := list[0].is
		for _, p := range list[1:] {
			is += ", " + strings.TrimPrefix(p.is, "unique ")
		}
		shape[o] = spelled(o.Kind, is)
		if o.Kind == schema.Index && strings.HasPrefix(is, "unique ") && !known.Has(o) && slices.Contains(keyed, o.Table) {
			shape[schema.Object{Table: o.Table, Kind: schema.Unsafe, Name: "index " + o.Name}] = fmt.Sprintf(
				"the unique index %q, by which a row takes the place of another: make it not unique", o.Name)
		}
	}
	return shape, rows.Err()
}

var (
	quotes   = strings.NewReplacer("`", "", `"`, "")
	brackets = strings.NewReplacer("(", "", ")", "")
)

// spelled takes out of a definition what servers write in different ways: the quotes, the brackets
// of a CHECK, and the text of an empty default.
func spelled(kind, is string) string {
	switch kind {
	case schema.Limit:
		return brackets.Replace(quotes.Replace(is))
	case schema.Column:
		return strings.TrimSuffix(strings.TrimSuffix(strings.ReplaceAll(is, "'", ""), "0x"), " ")
	}
	return is
}

// Differences says what dblock's tables lack of their version, or have otherwise. What the user may
// not see is not compared.
func Differences(ctx context.Context, conn Conn, name, server string, version int64) ([]string, error) {
	have, err := Objects(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	want := schema.Expected(schema.MySQL, version)
	if err := DropUnseen(ctx, conn, name, server, want, have); err != nil {
		return nil, err
	}
	return want.Differences(have), nil
}

// DropUnseen deletes from want what may be there and the user may not see. server is
// schema.MySQLServer's.
func DropUnseen(ctx context.Context, conn Conn, name, server string, want, have schema.Shape) (err error) {
	on := On(conn, name)
	columns := map[string][]string{} // that are not seen
	for _, o := range want.Missing(have) {
		if o.Kind == schema.Column {
			columns[o.Table] = append(columns[o.Table], schema.QuoteMySQL(o.Name))
		}
	}
	unsure := map[string]bool{}
	for table, list := range columns {
		gone, err := confirm(ctx, on, table, list)
		if err != nil {
			return err
		}
		unsure[table] = !gone
	}
	maps.DeleteFunc(want, func(o schema.Object, _ string) bool { return unsure[o.Table] })
	if server == schema.MariaDB {
		return dropHidden(ctx, on, want, have)
	}
	return nil // MySQL shows all indexes and constraints of a table of which it shows a column
}

// dropHidden deletes indexes and CHECKs that the user does not see. MariaDB shows no index to a
// user that may only read some columns, and no CHECK to one with privileges on the table alone. A
// user that sees the primary key sees the other indexes. Else the definition of the table shows
// them. have gets the CHECKs that it has.
func dropHidden(ctx context.Context, on mysqldb.DBTX, want, have schema.Shape) error {
	hidden := map[string][]schema.Object{}
	for _, o := range want.Missing(have) {
		key := schema.Object{Table: o.Table, Kind: schema.Index, Name: primary}
		if have.HasTable(o.Table) && (o.Kind == schema.Limit || o.Kind == schema.Index && !have.Has(key)) {
			hidden[o.Table] = append(hidden[o.Table], o)
		}
	}
	if len(hidden) == 0 {
		return nil
	}
	definitions, err := definitionsOf(ctx, on, slices.Sorted(maps.Keys(hidden)))
	for table, list := range hidden {
		for _, o := range list {
			text, seen := definitions[table]
			_, after, found := strings.Cut(text, clause(o))
			switch {
			case found && o.Kind == schema.Limit:
				line, _, _ := strings.Cut(after, "\n")
				have[o] = spelled(o.Kind, strings.TrimSuffix(line, ","))
			case found || !seen:
				delete(want, o)
			}
		}
	}
	return err
}

const primary = "PRIMARY" // the index of each table's primary key

// clause begins the definition of an index or a CHECK in a CREATE TABLE without quotes.
func clause(o schema.Object) string {
	switch {
	case o.Kind == schema.Limit:
		return "CONSTRAINT " + o.Name + " CHECK "
	case o.Name == primary:
		return "PRIMARY KEY "
	}
	return "KEY " + o.Name + " "
}

// definitionsOf returns the CREATE TABLE of tables in one round trip, without quotes: which ones
// MariaDB writes is a setting. A table is left out if the user may not see its definition. So are
// those after it, and views.
func definitionsOf(ctx context.Context, on mysqldb.DBTX, tables []string) (map[string]string, error) {
	rows, err := on.QueryContext(ctx, "BEGIN NOT ATOMIC SHOW CREATE TABLE "+strings.Join(tables, "; SHOW CREATE TABLE ")+"; END")
	if err != nil {
		return nil, ifLost(err)
	}
	defer rows.Close()
	definitions := map[string]string{}
	for more := true; more; more = rows.NextResultSet() {
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		for rows.Next() && len(columns) == 2 { // a view has more
			var table, text string
			if err := rows.Scan(&table, &text); err != nil {
				return nil, err
			}
			definitions[table] = quotes.Replace(text)
		}
	}
	return definitions, ifLost(rows.Err())
}

// ifLost returns an error that is not the server's answer.
func ifLost(err error) error {
	if ErrorNumber(err) != 0 {
		return nil
	}
	return err
}

// confirm reports whether the server says that the table or a column does not exist. To a user
// without a privilege it says that instead.
func confirm(ctx context.Context, on mysqldb.DBTX, table string, columns []string) (gone bool, err error) {
	rows, err := on.QueryContext(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+table+" LIMIT 0")
	if err == nil {
		return false, rows.Close()
	}
	switch ErrorNumber(err) {
	case NoSuchTable, NoSuchColumn:
		return true, nil
	}
	return false, ifLost(err)
}
