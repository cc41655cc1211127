package optimistic

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/optimistic"
)

// alteration is another type for a column, and a value that only this type can hold.
type alteration struct {
	old, new string
	before   any
	value    any
	stored   string // value, as the server shows it
}

// tableAltered: a Table that is in use when a column gets another type writes what it is given, or
// returns an error and then writes what it is given.
func tableAltered[DB any](t *testing.T, b *bank[DB]) {
	b.exec(t, "DROP TABLE IF EXISTS altered")
	var columns, changes []string
	var writes []map[string]alteredWrite
	all := b.alterations()
	for i, a := range all {
		c := fmt.Sprintf("c%d", i)
		columns = append(columns, c+" "+a.old+" NULL")
		changes = append(changes, b.by("ALTER "+c+" TYPE "+strings.ReplaceAll(a.new, "USING c", "USING "+c), "MODIFY "+c+" "+a.new+" NULL"))
	}
	b.exec(t, "CREATE TABLE altered (id BIGINT PRIMARY KEY, version BIGINT NOT NULL DEFAULT 1, "+strings.Join(columns, ", ")+")")
	b.exec(t, "INSERT INTO altered (id) VALUES (1)")
	for i, a := range all {
		writes = append(writes, altered(t, b, fmt.Sprintf("c%d", i)))
		for call, write := range writes[i] {
			for range 2 {
				require.NoError(t, write(t, a.before), a.old+": "+call)
			}
		}
	}
	b.exec(t, "ALTER TABLE altered "+strings.Join(changes, ", "))
	for i, a := range all {
		for call, write := range writes[i] {
			b.writesAltered(t, fmt.Sprintf("c%d", i), call, a, write)
		}
	}
}

type alteredWrite func(t *testing.T, value any) error

// altered are the calls that write a column, each by a Table of its own. They write the row 1, and
// Upsert inserts the row 11.
func altered[DB any](t *testing.T, b *bank[DB], column string) map[string]alteredWrite {
	t.Helper()
	update, many, upsert, blind := b.ints(t, "altered"), b.ints(t, "altered"), b.ints(t, "altered"), b.ints(t, "altered")
	version := func(t *testing.T) int64 {
		t.Helper()
		return b.number(t, "SELECT version FROM altered WHERE id = 1")
	}
	return map[string]alteredWrite{
		"Update": func(t *testing.T, value any) error {
			return suite.Second(update.Update(t.Context(), b.db, 1, version(t), optimistic.Set{column: value}))
		},
		"UpdateMany": func(t *testing.T, value any) error {
			changes := []change{{Key: 1, Expected: version(t), Set: optimistic.Set{column: value}}}
			return suite.Second(many.UpdateMany(t.Context(), b.db, changes, optimistic.AllOrNothing))
		},
		"Upsert": func(t *testing.T, value any) error {
			b.exec(t, "DELETE FROM altered WHERE id = 11")
			return suite.Second(upsert.Upsert(t.Context(), b.db, 11, optimistic.Absent[int64](), optimistic.Set{column: value}))
		},
		"Any": func(t *testing.T, value any) error {
			return suite.Second(blind.Any().Update(t.Context(), b.db, 1, optimistic.Set{column: value}))
		},
	}
}

// writesAltered writes after the column got its new type, at most twice.
func (b *bank[DB]) writesAltered(t *testing.T, column, call string, a alteration, write alteredWrite) {
	t.Helper()
	what, row := a.old+" to "+a.new+": "+call, "1"
	if call == "Upsert" {
		row = "11"
	}
	if write(t, a.value) != nil { // the table is looked at anew
		if err := write(t, a.value); err != nil {
			t.Errorf("%s again: %v", what, err)
			return
		}
	}
	var stored string
	query := "SELECT " + b.by(column+"::text", "CAST("+column+" AS BINARY)") + " FROM altered WHERE id = " + row
	require.NoError(t, b.sql.QueryRowContext(t.Context(), query).Scan(&stored), query)
	if stored != a.stored {
		t.Errorf("%s wrote %q, want %q", what, stored, a.stored)
	}
	b.exec(t, "UPDATE altered SET "+column+" = NULL")
}

// alteredVersion: where a compared column or a key gets another type, an expected value is compared
// as a whole. Cut to the old type it would be equal to what another writer has stored.
func alteredVersion[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.exec(t, "CREATE TABLE dated (id INT PRIMARY KEY, at DATE, n INT)")
	b.exec(t, "INSERT INTO dated VALUES (1, '2024-02-29', 0)")
	update, many, remove := b.columns(t, "dated", "at"), b.columns(t, "dated", "at"), b.columns(t, "dated", "at")
	read, set := values{"at": "2024-02-29 10:11:12"}, optimistic.Set{"n": 1}
	calls := map[string]func(values) error{
		"Update": func(v values) error { return suite.Second(update.Update(ctx, b.db, 1, v, set)) },
		"UpdateMany": func(v values) error {
			return suite.Second(many.UpdateMany(ctx, b.db, []optimistic.Change[values]{{Key: 1, Expected: v, Set: set}}, optimistic.AllOrNothing))
		},
		"Delete": func(v values) error { return remove.Delete(ctx, b.db, 1, v) },
	}
	for call, write := range calls {
		for range 2 {
			if err := write(values{"at": "2024-03-01"}); !errors.Is(err, optimistic.ErrConflict) {
				t.Errorf("%s: %v", call, err)
			}
		}
	}
	b.exec(t, b.by("ALTER TABLE dated ALTER at TYPE TIMESTAMP, ALTER id TYPE BIGINT", "ALTER TABLE dated MODIFY at DATETIME(6), MODIFY id BIGINT"))
	for _, call := range []string{"Update", "UpdateMany", "Delete"} {
		for range 2 {
			if err := calls[call](read); !errors.Is(err, optimistic.ErrConflict) && !errors.Is(err, dblock.ErrConflict) {
				t.Errorf("%s at another time of the same day: %v", call, err)
			}
		}
	}
	if n := b.number(t, "SELECT count(*) FROM dated WHERE n = 0"); n != 1 {
		t.Errorf("%d rows are as they were", n)
	}
	b.exec(t, "UPDATE dated SET at = '2024-02-29 10:11:12'")
	for _, call := range []string{"Update", "UpdateMany", "Delete"} {
		require.NoError(t, calls[call](read), call)
	}
}

// alteredFacts: a Table refuses what the table could not do before it was altered only once.
func alteredFacts[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.exec(t, "CREATE TABLE grown (id INT PRIMARY KEY, version SMALLINT NOT NULL)")
	b.exec(t, "INSERT INTO grown VALUES (1, 32767)")
	table := b.ints(t, "grown")
	calls := map[string]func() error{
		"Touch":  func() error { return suite.Second(table.Touch(ctx, b.db, 1, 32767)) },
		"Update": func() error { return suite.Second(table.Update(ctx, b.db, 1, 32768, optimistic.Set{"note": "x"})) },
	}
	for _, alter := range []struct{ call, change string }{
		{"Touch", b.by("ALTER version TYPE BIGINT", "MODIFY version BIGINT NOT NULL")}, {"Update", "ADD COLUMN note VARCHAR(5)"},
	} {
		badInput(t, alter.call, calls[alter.call]())
		b.exec(t, "ALTER TABLE grown "+alter.change)
		require.NoError(t, calls[alter.call](), alter.call)
	}
}

// alterations are wider types for columns, for which the values need no rounding.
func (b *bank[DB]) alterations() []alteration {
	at := time.Date(2024, 2, 29, 1, 2, 3, 456789000, time.UTC)
	day := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	if b.postgres() {
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
