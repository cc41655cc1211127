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
// expected; and NULL matches only NULL. Some types can't be compared.
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

// means reports whether a value means anything in a column of a type. What the servers make of the
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

// alteration is another type for a column, and a value that only this type can hold.
type alteration struct {
	old, new      string
	before, value any
	stored        string // value, as the server shows it
}

// Altered: a Table that is in use when a column gets another type writes what it is given, or
// returns an error and then writes what it is given.
func (tests[DB]) Altered(t *testing.T, b *env[DB]) {
	b.Exec(t, "DROP TABLE IF EXISTS altered")
	var columns, changes []string
	all := b.alterations()
	for i, a := range all {
		c := fmt.Sprintf("c%d", i)
		columns = append(columns, c+" "+a.old+" NULL")
		changes = append(changes, b.by("ALTER "+c+" TYPE "+strings.ReplaceAll(a.new, "USING c", "USING "+c), "MODIFY "+c+" "+a.new+" NULL"))
	}
	b.Exec(t, "CREATE TABLE altered (id BIGINT PRIMARY KEY, version BIGINT NOT NULL DEFAULT 1, "+strings.Join(columns, ", ")+")")
	b.Exec(t, "INSERT INTO altered (id) VALUES (1)")
	calls := alteredCalls(t, b)
	for i, a := range all {
		for name, write := range calls {
			for range 2 {
				require.NoError(t, write(t, fmt.Sprintf("c%d", i), a.before), a.old+": "+name)
			}
		}
	}
	b.Exec(t, "ALTER TABLE altered "+strings.Join(changes, ", "))
	for i, a := range all {
		for name, write := range calls {
			what, column := a.old+" to "+a.new+": "+name, fmt.Sprintf("c%d", i)
			if write(t, column, a.value) != nil { // the table is looked at anew
				require.NoError(t, write(t, column, a.value), what)
			}
			id := "1"
			if name == "Upsert" {
				id = "11"
			}
			query := "SELECT " + b.by(column+"::text", "CAST("+column+" AS BINARY)") + " FROM altered WHERE id = " + id
			assert.Equal(t, a.stored, b.Text(t, query), what)
			b.Exec(t, "UPDATE altered SET "+column+" = NULL")
		}
	}
}

// alteredCalls are the calls that write a column of the row 1, each by a Table of its own for each
// column. Upsert inserts the row 11.
func alteredCalls[DB any](t *testing.T, b *env[DB]) map[string]func(t *testing.T, column string, value any) error {
	t.Helper()
	tables := map[string]*optimistic.Table[int64, DB]{}
	table := func(t *testing.T, call, column string) *optimistic.Table[int64, DB] {
		t.Helper()
		if tables[call+column] == nil {
			tables[call+column] = b.ints(t, "altered")
		}
		return tables[call+column]
	}
	version := func(t *testing.T) int64 { return b.Count(t, "SELECT version FROM altered WHERE id = 1") }
	return map[string]func(t *testing.T, column string, value any) error{
		"Update": func(t *testing.T, column string, value any) error {
			return errOf(table(t, "Update", column).Update(t.Context(), b.db, 1, version(t), set{column: value}))
		},
		"UpdateMany": func(t *testing.T, column string, value any) error {
			changes := []change{{Key: 1, Expected: version(t), Set: set{column: value}}}
			return errOf(table(t, "UpdateMany", column).UpdateMany(t.Context(), b.db, changes, optimistic.UpdateAllOrNothing))
		},
		"Upsert": func(t *testing.T, column string, value any) error {
			b.Exec(t, "DELETE FROM altered WHERE id = 11")
			return errOf(table(t, "Upsert", column).Upsert(t.Context(), b.db, 11, optimistic.Absent[int64](), set{column: value}))
		},
		"Any": func(t *testing.T, column string, value any) error {
			return errOf(table(t, "Any", column).Any().Update(t.Context(), b.db, 1, set{column: value}))
		},
	}
}

// AlteredVersion: if a compared column or a key gets another type, an expected value is compared as
// a whole. Cut to the old type it would be equal to what another writer has stored.
func (tests[DB]) AlteredVersion(t *testing.T, b *env[DB]) {
	ctx := t.Context()
	b.Exec(t, "CREATE TABLE dated (id INT PRIMARY KEY, at DATE, n INT)")
	b.Exec(t, "INSERT INTO dated VALUES (1, '2024-02-29', 0)")
	update, many, remove := b.columns(t, "dated", "at"), b.columns(t, "dated", "at"), b.columns(t, "dated", "at")
	read, one := values{"at": "2024-02-29 10:11:12"}, set{"n": 1}
	names := []string{"Update", "UpdateMany", "Delete"}
	calls := map[string]func(values) error{
		"Update": func(v values) error { return errOf(update.Update(ctx, b.db, 1, v, one)) },
		"UpdateMany": func(v values) error {
			return errOf(many.UpdateMany(ctx, b.db, []optimistic.Change[values]{{Key: 1, Expected: v, Set: one}}, optimistic.UpdateAllOrNothing))
		},
		"Delete": func(v values) error { return remove.Delete(ctx, b.db, 1, v) },
	}
	for _, name := range append(names, names...) {
		assert.ErrorIs(t, calls[name](values{"at": "2024-03-01"}), optimistic.ErrStale, name)
	}
	b.Exec(t, b.by("ALTER TABLE dated ALTER at TYPE TIMESTAMP, ALTER id TYPE BIGINT", "ALTER TABLE dated MODIFY at DATETIME(6), MODIFY id BIGINT"))
	for _, name := range []string{"Update", "Update", "UpdateMany", "UpdateMany", "Delete", "Delete"} {
		err := calls[name](read)
		assert.True(t, errors.Is(err, optimistic.ErrStale) || errors.Is(err, dblock.ErrConflict), "%s at another time of the day: %v", name, err)
	}
	b.is(t, 1, "SELECT count(*) FROM dated WHERE n = 0")
	b.Exec(t, "UPDATE dated SET at = '2024-02-29 10:11:12'")
	for _, name := range names {
		require.NoError(t, calls[name](read), name)
	}
}

// AlteredFacts: a Table refuses what the table could not do before it was Altered only once.
func (tests[DB]) AlteredFacts(t *testing.T, b *env[DB]) {
	ctx := t.Context()
	b.Exec(t, "CREATE TABLE grown (id INT PRIMARY KEY, version SMALLINT NOT NULL)")
	b.Exec(t, "INSERT INTO grown VALUES (1, 32767)")
	table := b.ints(t, "grown")
	touch := func() error { return errOf(table.Touch(ctx, b.db, 1, 32767)) }
	badInput(t, "touch", touch())
	b.Exec(t, "ALTER TABLE grown "+b.by("ALTER version TYPE BIGINT", "MODIFY version BIGINT NOT NULL"))
	require.NoError(t, touch())
	update := func() error { return errOf(table.Update(ctx, b.db, 1, 32768, set{"note": "x"})) }
	badInput(t, "update", update())
	b.Exec(t, "ALTER TABLE grown ADD COLUMN note VARCHAR(5)")
	require.NoError(t, update())
}

// alterations are wider types for columns, for which the values need no rounding.
func (b *env[DB]) alterations() []alteration {
	at := time.Date(2024, 2, 29, 1, 2, 3, 456789000, time.UTC)
	day := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	if b.Postgres() {
		return []alteration{
			{"varchar(5)", "text", "short", "longer than five", "longer than five"},
			{"varchar(5)", "varchar(50)", "short", "longer than five", "longer than five"},
			{"char(5)", "text", "ab", "ab   ", "ab   "},
			{"numeric(6,2)", "numeric(10,4)", "1.25", "1.2345", "1.2345"},
			{"int", "bigint", 1, int64(3_000_000_000), "3000000000"},
			{"int", "numeric", 1, "1.5", "1.5"},
			{"real", "double precision", 0.5, 0.1234567890123, "0.1234567890123"},
			{"timestamptz(0)", "timestamp(6)", day, at, "2024-02-29 01:02:03.456789"},
			{"timestamptz", "timestamp", day, at, "2024-02-29 01:02:03.456789"},
			{"date", "timestamp", day, at, "2024-02-29 01:02:03.456789"},
			{"text", "bytea USING c::bytea", "a", []byte{0xff, 0}, `\xff00`},
			{"money", "numeric(10,4)", "1.25", "1.2345", "1.2345"},
			{"json", "text", `{}`, `{"a":  1}`, `{"a":  1}`},
			{"jsonb", "text", `{}`, `{"a":  1}`, `{"a":  1}`},
			{"int[]", "bigint[]", []int64{1}, []int64{3_000_000_000}, "{3000000000}"},
		}
	}
	return []alteration{
		{"VARCHAR(5)", "TEXT", "short", "longer than five", "longer than five"},
		{"CHAR(5)", "VARCHAR(20)", "ab", "ab   ", "ab   "},
		{"DECIMAL(6,2)", "DECIMAL(10,4)", "1.25", "1.2345", "1.2345"},
		{"INT", "BIGINT", 1, int64(3_000_000_000), "3000000000"},
		{"INT", "DECIMAL(3,1)", 1, "1.5", "1.5"},
		{"FLOAT", "DOUBLE", 0.5, 0.1234567890123, "0.1234567890123"},
		{"DATETIME", "DATETIME(6)", "2024-02-29", "2024-02-29 01:02:03.456789", "2024-02-29 01:02:03.456789"},
		{"DATE", "DATETIME(6)", "2024-02-29", "2024-02-29 01:02:03.456789", "2024-02-29 01:02:03.456789"},
		{"TEXT", "BLOB", "a", []byte{0xff, 0}, "\xff\x00"},
		{"BINARY(2)", "VARBINARY(20)", []byte{1, 2}, []byte{0xff, 0, 1}, "\xff\x00\x01"},
		{"BIT(1)", "BIT(64)", 1, uint64(1 << 56), "\x01\x00\x00\x00\x00\x00\x00\x00"},
	}
}
