package optimistic

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

// manyWritesTheSame: whatever the type of a column and the Go type of a value, UpdateMany writes what Update
// writes, or refuses what it refuses; also if the rows of one call have values of different Go types.
func manyWritesTheSame[DB any](t *testing.T, b *bank[DB]) {
	types, given := b.columnTypes(), sampleValues()
	b.exec(t, "DROP TABLE IF EXISTS single, several, mixed")
	b.exec(t, b.by("DROP TYPE IF EXISTS mood CASCADE", "DO 1"))
	b.exec(t, b.by("CREATE TYPE mood AS ENUM ('good', 'bad', '5', '1')", "DO 1"))
	var columns, rows []string
	for i, typ := range types {
		columns = append(columns, fmt.Sprintf("c%d %s NULL", i, typ))
	}
	for i := range given {
		rows = append(rows, fmt.Sprintf("(%d, 1)", i))
	}
	for _, table := range []string{"single", "several", "mixed"} {
		b.exec(t, "CREATE TABLE "+table+" (id BIGINT PRIMARY KEY, version BIGINT NOT NULL, "+strings.Join(columns, ", ")+")")
		b.exec(t, "INSERT INTO "+table+" (id, version) VALUES "+strings.Join(rows, ", "))
	}
	for i, typ := range types {
		b.writesColumn(t, fmt.Sprintf("c%d", i), typ, given)
	}
}

// writesColumn writes each value by Update and by UpdateMany, and all that were taken by one UpdateMany.
func (b *bank[DB]) writesColumn(t *testing.T, column, typ string, given []any) {
	t.Helper()
	ctx := t.Context()
	single, several, mixed := b.ints(t, "single"), b.ints(t, "several"), b.ints(t, "mixed")
	for _, table := range []string{"single", "several", "mixed"} {
		b.exec(t, "UPDATE "+table+" SET version = 1")
	}
	db, done := b.db, func() error { return nil }
	if !b.postgres() { // there an error ends no transaction, and without one each write takes seven statements
		tx := b.tx(t, sql.LevelReadCommitted)
		db, done = tx.DB, tx.Commit
	}
	var taken []change
	for id, value := range given {
		if !b.means(typ, value) {
			continue
		}
		c := change{Key: id, Expected: 1, Set: optimistic.Set{column: value}}
		_, one := single.Update(ctx, db, id, 1, c.Set)
		_, many := several.UpdateMany(ctx, db, []change{c}, optimistic.AllOrNothing)
		if (one == nil) != (many == nil) {
			t.Errorf("%s = %T %v: Update: %v; UpdateMany: %v", typ, value, value, one, many)
		} else if one == nil {
			taken = append(taken, c)
		}
	}
	if _, err := mixed.UpdateMany(ctx, db, taken, optimistic.AllOrNothing); err != nil {
		t.Errorf("%s: values of different Go types: %v", typ, err)
	}
	require.NoError(t, done(), "commit")
	for _, c := range taken {
		id := itoa(int64(c.Key.(int)))
		one, many, among := b.stored(t, "single", column, id), b.stored(t, "several", column, id), b.stored(t, "mixed", column, id)
		if one != many || one != among {
			t.Errorf("%s = %T %v: Update wrote %q, UpdateMany %q, among others %q", typ, c.Set[column], c.Set[column], one, many, among)
		}
	}
}

// means tells whether a value means anything in a column of a type. What the servers make of the others
// depends on how they are sent.
func (b *bank[DB]) means(typ string, value any) bool {
	_, isFloat := value.(float64)
	text, isText := value.(string)
	bytes, isBytes := value.([]byte)
	switch {
	case b.postgres():
		return typ != "mood" || !isBytes
	case strings.HasPrefix(typ, "DATE"), strings.HasPrefix(typ, "TIME"):
		return !isFloat
	case strings.HasPrefix(typ, "BIT"):
		return !isText || !strings.HasPrefix(text, "-")
	case strings.Contains(typ, "latin1"):
		return !isBytes || utf8.Valid(bytes)
	}
	return true
}

// columnTypes are the types of columns that values are written to.
func (b *bank[DB]) columnTypes() []string {
	if b.postgres() {
		return []string{
			"smallint", "int", "bigint", "numeric(50,0)", "numeric(10,2)", "numeric", "real", "double precision", "varchar(5)", "char(5)",
			"text", "bytea", "date", "timestamp(0)", "timestamptz", "time", "interval", "boolean", "uuid", "json", "jsonb", "bit(8)", "mood",
			"int[]", "text[]", "numeric(10,2)[]", "bytea[]", "mood[]", "timestamptz[]", "int4range", "inet",
		}
	}
	types := []string{
		"TINYINT", "INT", "BIGINT UNSIGNED", "DECIMAL(50,0)", "DECIMAL(65,30)", "DECIMAL(10,2)", "FLOAT", "DOUBLE", "VARCHAR(5)", "CHAR(5)", "TEXT",
		"VARCHAR(5) CHARACTER SET latin1", "VARBINARY(40)", "BINARY(5)", "BLOB", "BIT(1)", "BIT(8)", "BIT(64)", "DATE", "DATETIME", "DATETIME(6)",
		"TIMESTAMP(3)", "TIME(3)", "YEAR", "ENUM('good', 'bad', '5', '1')", "SET('good', 'bad', '5', '1')", "JSON",
	}
	if b.e.Kind == devdb.MariaDB {
		types = append(types, "UUID", "INET6")
	}
	return types
}

// sampleValues are values of all Go types that are written; the first is NULL.
func sampleValues() []any {
	return []any{
		nil, int64(1), 5, uint64(200), int64(-1), uint64(1<<63 + 5), 0.5, 1e20, true, false, "5", "1", "good", "good,bad", "x", "toolong", "äö",
		"12345678901234567890123456789012345678901234567890", "1.005", "-12.5", "2024-02-29", "2024-02-29 01:02:03.456789", "01:02:03.4567",
		`{"a": [1, "b"]}`, "{1,2}", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "::1", "10101010", "[1,5)",
		[]byte{5}, []byte{0xff, 0}, []byte("good"), []byte("5"), []byte(`{"a": 1}`), []byte{}, "",
		json.RawMessage(`[1, 2]`), map[string]int{"a": 1}, []string{"good", "b,\"c'"}, []int32{1, 2}, []int32{}, [][]byte{{1}, nil}, [][]int32{{1}, {2}},
		[16]byte{1, 2, 3}, time.Date(2024, 2, 29, 1, 2, 3, 456789000, time.UTC), time.Duration(90) * time.Second,
	}
}

// stored is what a row has in a column, as the server shows it.
func (b *bank[DB]) stored(t *testing.T, table, column, id string) (text string) {
	t.Helper()
	err := b.sql.QueryRowContext(t.Context(), "SELECT COALESCE("+b.by(column+"::text", "HEX("+column+")")+", 'NULL') FROM "+table+" WHERE id = "+id).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
