package optimistic

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

func (tests[DB]) ManyWritesTheSame(t *testing.T, b *env[DB]) { manyWritesTheSame(t, b, 2) }

// manyWritesTheSame: whatever the type of a column and the Go type of a value, UpdateMany writes
// what Update writes, or refuses what it refuses; also if the rows of one call have values of
// different Go types. A column gets one of so many values, drawn by the test's name, and always
// NULL and the greatest number. Under DBLOCK_SOAK it gets all of them.
func manyWritesTheSame[DB any](t *testing.T, b *env[DB], oneOf int) {
	first := int(suite.SeedOf(t) % uint64(oneOf))
	if os.Getenv(suite.EnvSoak) != "" {
		oneOf = 1
	}
	types, given := b.columnTypes(), sampleValues()
	b.Exec(t, "DROP TABLE IF EXISTS single, several, mixed")
	if b.Postgres() {
		b.Exec(t, "DROP TYPE IF EXISTS mood CASCADE")
		b.Exec(t, "CREATE TYPE mood AS ENUM ('good', 'bad', '5', '1')")
	}
	var columns, rows []string
	for i, typ := range types {
		columns = append(columns, fmt.Sprintf("c%d %s NULL", i, typ))
	}
	for i := range given {
		rows = append(rows, fmt.Sprintf("(%d, 1)", i))
	}
	for _, table := range []string{"single", "several", "mixed"} {
		b.Exec(t, "CREATE TABLE "+table+" (id BIGINT PRIMARY KEY, version BIGINT NOT NULL, "+strings.Join(columns, ", ")+")")
		b.Exec(t, "INSERT INTO "+table+" (id, version) VALUES "+strings.Join(rows, ", "))
	}
	for i, typ := range types {
		b.writesColumn(t, fmt.Sprintf("c%d", i), typ, given, func(id int) bool { return id == null || id == greatest || (id+i+first)%oneOf == 0 })
	}
}

// writesColumn writes each value by Update and by UpdateMany, and all that were taken by one
// UpdateMany.
func (b *env[DB]) writesColumn(t *testing.T, column, typ string, given []any, chosen func(id int) bool) {
	t.Helper()
	ctx := t.Context()
	single, several, mixed := b.ints(t, "single"), b.ints(t, "several"), b.ints(t, "mixed")
	for _, table := range []string{"single", "several", "mixed"} {
		b.Exec(t, "UPDATE "+table+" SET version = 1")
	}
	db, commit := b.db, func() error { return nil }
	if !b.Postgres() { // there an error ends no transaction, and without one each write takes seven statements
		tx := b.tx(t, sql.LevelReadCommitted)
		db, commit = tx.DB, tx.Commit
	}
	var taken []change
	for id, value := range given {
		if !chosen(id) || !b.means(typ, value) {
			continue
		}
		c := change{Key: id, Expected: 1, Set: set{column: value}}
		one := errOf(single.Update(ctx, db, id, 1, c.Set))
		many := errOf(several.UpdateMany(ctx, db, []change{c}, optimistic.UpdateAllOrNothing))
		if one == nil && many == nil {
			taken = append(taken, c)
		}
		assert.Equal(t, one == nil, many == nil, "%s = %T %v: Update: %v; UpdateMany: %v", typ, value, value, one, many)
	}
	if len(taken) > 0 {
		assert.NoError(t, errOf(mixed.UpdateMany(ctx, db, taken, optimistic.UpdateAllOrNothing)), "%s: values of different Go types", typ)
	}
	b.comparesColumn(t, db, column, typ, taken)
	require.NoError(t, commit())
	stored := func(table string) []string {
		return b.Texts(t, "SELECT COALESCE("+b.by(column+"::text", "HEX("+column+")")+", 'NULL') FROM "+table+" ORDER BY id")
	}
	one, many, among := stored("single"), stored("several"), stored("mixed")
	for _, c := range taken {
		id, value := c.Key.(int), c.Set[column]
		assert.Equal(t, one[id], many[id], "%s = %T %v: by Update and by UpdateMany", typ, value, value)
		assert.Equal(t, one[id], among[id], "%s = %T %v: by Update and among others", typ, value, value)
	}
}

// comparesColumn: what was read from a column, and what a write has returned, can be given back as
// expected; and NULL is expected in vain, unless it is there. Some types can't be compared.
func (b *env[DB]) comparesColumn(t *testing.T, db DB, column, typ string, taken []change) {
	t.Helper()
	ctx, table := t.Context(), b.columns(t, "single", column)
	if errors.Is(table.Check(ctx, db), dblock.ErrInvalid) {
		return
	}
	for _, c := range taken {
		what := fmt.Sprintf("%s = %T %v", typ, c.Set[column], c.Set[column])
		read := must(table.Version(ctx, db, c.Key))(t)
		if read[column] == nil && c.Set[column] != nil {
			continue // a date such as 0000-00-00, which is read as NULL
		}
		told, err := table.Update(ctx, db, c.Key, read, set{"version": 7})
		if !assert.NoError(t, err, what) {
			continue
		}
		assert.NoError(t, errOf(table.Update(ctx, db, c.Key, told, set{"version": 8})), what)
		if null := (values{column: nil}); read[column] != nil {
			conflicts(t, what, errOf(table.Update(ctx, db, c.Key, null, set{"version": 9})), null, read)
		}
	}
}

// means tells whether a value means anything in a column of a type. What the servers make of the
// others depends on how they are sent.
func (b *env[DB]) means(typ string, value any) bool {
	_, isFloat := value.(float64)
	text, isText := value.(string)
	bytes, isBytes := value.([]byte)
	switch {
	case b.Postgres():
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
func (b *env[DB]) columnTypes() []string {
	if b.Postgres() {
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
	if b.Kind == devdb.MariaDB {
		types = append(types, "UUID", "INET6")
	}
	return types
}

// The places of two of the sampleValues.
const null, greatest = 0, 5

// sampleValues are values of all Go types that are written.
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
