package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

func tableNames[DB any](t *testing.T, b *bank[DB]) {
	ctx, q := t.Context(), b.by(`"`, "`")
	other := b.by("odd ; schema", b.databaseName(t))
	if b.postgres() {
		b.exec(t, `CREATE SCHEMA "odd ; schema"`)
	}
	name := func(s string) string { return q + strings.ReplaceAll(s, q, q+q) + q }
	const table, key, version, value = "a \"b\" `c` 'd'", "the \"key\" `k`", "the `version` \"v\"", "WHERE \"x\" = `y` ? $1"
	b.exec(t, "CREATE TABLE "+name(other)+"."+name(table)+" ("+name(key)+" VARCHAR(20) PRIMARY KEY, "+name(version)+
		" BIGINT NOT NULL DEFAULT 1, "+name(value)+" VARCHAR(20))")
	odd := sure(b.e.Int(other+"."+table, key, optimistic.Int(version)))(t)
	require.NoError(t, odd.Check(ctx, b.db), "check")
	v := sure(odd.Upsert(ctx, b.db, "o'k\\", optimistic.Absent[int64](), optimistic.Set{value: "'; --"}))(t)
	v = sure(odd.Update(ctx, b.db, "o'k\\", v, optimistic.Set{value: "\" ` '"}))(t)
	v = sure(odd.Touch(ctx, b.db, "o'k\\", v))(t)
	sure(odd.UpdateMany(ctx, b.db, []optimistic.Change[int64]{{Key: "o'k\\", Expected: v, Set: optimistic.Set{value: "x"}}}, optimistic.EachRow))(t)
	require.NoError(t, odd.Delete(ctx, b.db, "o'k\\", v+1), "delete")
	both := sure(b.e.Values(other+"."+table, key, optimistic.Columns(value)))(t)
	sure(both.Upsert(ctx, b.db, "k", optimistic.Absent[optimistic.Values](), optimistic.Set{value: "x"}))(t)
	sure(both.Update(ctx, b.db, "k", optimistic.Values{value: "x"}, optimistic.Set{value: "y"}))(t)
}

func (b *bank[DB]) databaseName(t *testing.T) (name string) {
	t.Helper()
	if err := b.sql.QueryRowContext(t.Context(), b.by("SELECT current_database()", "SELECT DATABASE()")).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

func tableRefusesBadInput[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	for name, err := range map[string]error{
		"no table":       suite.Second(b.e.Int("", "id", optimistic.Int("version"))),
		"two dots":       suite.Second(b.e.Int("a.b.c", "id", optimistic.Int("version"))),
		"NUL":            suite.Second(b.e.Int("a\x00", "id", optimistic.Int("version"))),
		"a long name":    suite.Second(b.e.Int(strings.Repeat("a", 64), "id", optimistic.Int("version"))),
		"no key":         suite.Second(b.e.Int("account", "", optimistic.Int("version"))),
		"no version":     suite.Second(b.e.Int("account", "id", optimistic.Int(""))),
		"the zero token": suite.Second(b.e.Int("account", "id", optimistic.Token[int64]{})),
		"no columns":     suite.Second(b.e.Values("account", "id", optimistic.Columns())),
		"twice":          suite.Second(b.e.Values("account", "id", optimistic.Columns("note", "note"))),
		"the key":        suite.Second(b.e.Values("account", "id", optimistic.Columns("note", "id"))),
	} {
		badInput(t, name, err)
	}
	table := b.ints(t, "account")
	set := optimistic.Set{"balance": 5}
	// A statement of two columns, which is kept, is not taken for one of a column whose name looks like both.
	sure(table.Any().Update(ctx, b.db, 10, optimistic.Set{"balance": 0, "note": nil}))(t)
	require.NoError(t, table.Any().Delete(ctx, b.db, 10), "delete")
	var none *int64
	for name, of := range map[string]struct {
		key     any
		version int64
		set     optimistic.Set
	}{
		"nil key":             {nil, 1, set},
		"nil pointer":         {none, 1, set},
		"nil bytes":           {[]byte(nil), 1, set},
		"key with NUL":        {"a\x00", 1, set},
		"float key":           {1.0, 1, set},
		"version 0":           {1, 0, set},
		"version below 0":     {1, -1, set},
		"empty set":           {1, 1, optimistic.Set{}},
		"nil set":             {1, 1, nil},
		"unknown column":      {1, 1, optimistic.Set{"nothing": 1}},
		"column without name": {1, 1, optimistic.Set{"": 1}},
		"quotes":              {1, 1, optimistic.Set{"balance\" = 7, \"note": 1}},
		"backticks":           {1, 1, optimistic.Set{"balance` = 7, `note": 1}},
		"NUL in a column":     {1, 1, optimistic.Set{"balance\x00": 1}},
		"columns with NUL":    {1, 1, optimistic.Set{"balance\x00note": 1}},
		"columns in one":      {1, 1, optimistic.Set{"balance\x04note": 1}},
		"the key":             {1, 1, optimistic.Set{"id": 7}},
		"the version":         {1, 1, optimistic.Set{"version": 7}},
	} {
		_, err := table.Update(ctx, b.db, of.key, of.version, of.set)
		badInput(t, name, err)
		_, err = table.UpdateMany(ctx, b.db, []optimistic.Change[int64]{{Key: of.key, Expected: of.version, Set: of.set}}, optimistic.EachRow)
		badInput(t, name+" of many", err)
	}
	b.refusesOtherTokens(t, set)
	if n := b.number(t, "SELECT count(*) FROM account WHERE balance <> 0 OR version <> 1 OR note IS NOT NULL"); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// refusesOtherTokens is about what other tokens than integers take for a version, and Upsert; and about what MySQL compares.
func (b *bank[DB]) refusesOtherTokens(t *testing.T, set optimistic.Set) {
	ctx, table := t.Context(), b.ints(t, "account")
	if !b.postgres() { // there VERSION would be a column of its own
		_, err := table.Update(ctx, b.db, 1, 1, optimistic.Set{"VERSION": 7})
		badInput(t, "the version in upper case", err)
		for _, key := range []any{"1", "1 or so", true, []byte("1")} {
			_, err = table.Update(ctx, b.db, key, 1, set)
			badInput(t, "a key of another type", err)
		}
	}
	_, err := table.Upsert(ctx, b.db, 1, optimistic.Expected[int64]{}, set)
	badInput(t, "nothing expected", err)
	_, err = table.Upsert(ctx, b.db, 1, optimistic.At(int64(0)), set)
	badInput(t, "upsert at 0", err)
	_, err = table.Upsert(ctx, b.db, 100, optimistic.Absent[int64](), nil)
	badInput(t, "upsert of nothing", err)
	times := sure(b.e.Time("account", "id", optimistic.Timestamp("changed")))(t)
	for _, v := range []time.Time{{}, time.Date(999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10001, 1, 1, 0, 0, 0, 0, time.UTC)} {
		badInput(t, v.String(), times.Delete(ctx, b.db, 1, v))
	}
	columns := b.columns(t, "account", "balance", "note")
	for _, v := range []optimistic.Values{nil, {}, {"balance": 0}, {"balance": 0, "id": 1}, {"balance": 0, "note": nil, "id": 1}} {
		_, err := columns.Update(ctx, b.db, 1, v, set)
		badInput(t, "columns", err)
	}
	_, err = columns.Touch(ctx, b.db, 1, optimistic.Values{"balance": 0, "note": nil})
	badInput(t, "touch of columns", err)
}

// tableRefusesBadTables: what is wrong with a table is said before anything is written, with what to do.
func tableRefusesBadTables[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.exec(t, "CREATE TABLE odd (id BIGINT PRIMARY KEY, nullable BIGINT DEFAULT 1, label VARCHAR(20) NOT NULL, half DOUBLE PRECISION, doc JSON, "+
		b.by("second TIMESTAMPTZ(0) NOT NULL, milli TIMESTAMP(3) NOT NULL)", "second DATETIME NOT NULL, milli DATETIME(3) NOT NULL)"))
	b.exec(t, "CREATE VIEW seen AS SELECT * FROM account")
	float := "half"
	for name, of := range map[string]struct {
		err  error
		says string
	}{
		"no table":       {b.ints(t, "nothing").Check(ctx, b.db), "no table"},
		"no schema":      {b.ints(t, "nowhere.nothing").Check(ctx, b.db), "no table"},
		"no key":         {sure(b.e.Int("account", "nokey", optimistic.Int("version")))(t).Check(ctx, b.db), "no column"},
		"no version":     {sure(b.e.Int("account", "id", optimistic.Int("nover")))(t).Check(ctx, b.db), "ALTER TABLE"},
		"nullable":       {sure(b.e.Int("odd", "id", optimistic.Int("nullable")))(t).Check(ctx, b.db), "NOT NULL"},
		"text":           {sure(b.e.Int("odd", "id", optimistic.Int("label")))(t).Check(ctx, b.db), "BIGINT"},
		"no UUID":        {sure(b.e.UUID("odd", "id", optimistic.UUID("label")))(t).Check(ctx, b.db), "ALTER TABLE"},
		"seconds":        {sure(b.e.Time("odd", "id", optimistic.Timestamp("second")))(t).Check(ctx, b.db), "0 digits of a second"},
		"milliseconds":   {sure(b.e.Time("odd", "id", optimistic.Timestamp("milli")))(t).Check(ctx, b.db), "3 digits of a second"},
		"a view":         {sure(b.e.Int("seen", "id", optimistic.Int("version")))(t).Check(ctx, b.db), ""},
		"key not unique": {sure(b.e.Int("account", "balance", optimistic.Int("version")))(t).Check(ctx, b.db), "unique index"},
		"floats":         {b.columns(t, "odd", "label", float).Check(ctx, b.db), "exactly"},
		"no such column": {b.columns(t, "odd", "label", "nothing").Check(ctx, b.db), "no column"},
	} {
		badInput(t, name, of.err)
		if of.err != nil && !strings.Contains(of.err.Error(), of.says) {
			t.Errorf("%s: %v does not say %q", name, of.err, of.says)
		}
	}
	if b.e.Kind != devdb.MariaDB { // where JSON is a text, and compared as one
		badInput(t, "JSON", b.columns(t, "odd", "doc").Check(ctx, b.db))
	}
	if !b.postgres() {
		b.exec(t, "CREATE TABLE zoned (id BIGINT PRIMARY KEY, at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))")
		badInput(t, "TIMESTAMP", sure(b.e.Time("zoned", "id", optimistic.Timestamp("at")))(t).Check(ctx, b.db))
		badInput(t, "TIMESTAMP", b.columns(t, "zoned", "at").Check(ctx, b.db))
		b.refusesOtherEngines(t)
		return
	}
	b.exec(t, "CREATE TABLE parted (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1) PARTITION BY HASH (id)")
	b.exec(t, "CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
	parted := b.ints(t, "parted")
	v := sure(parted.Upsert(ctx, b.db, 1, optimistic.Absent[int64](), optimistic.Set{"balance": 1}))(t)
	sure(parted.Update(ctx, b.db, 1, v, optimistic.Set{"balance": 1}))(t)
	b.exec(t, "CREATE TABLE heir () INHERITS (account)")
	badInput(t, "inherited", b.ints(t, "account").Check(ctx, b.db))
	b.exec(t, "CREATE TABLE part (id BIGINT, version BIGINT NOT NULL DEFAULT 1, UNIQUE (id, version))")
	b.exec(t, "CREATE UNIQUE INDEX part_some ON part (id) WHERE version > 5")
	badInput(t, "partial", b.ints(t, "part").Check(ctx, b.db))
	b.exec(t, "CREATE TABLE later (id BIGINT UNIQUE DEFERRABLE, version BIGINT NOT NULL DEFAULT 1)")
	badInput(t, "deferrable", b.ints(t, "later").Check(ctx, b.db))
}

// refusesOtherEngines: a table that rolls nothing back and locks no row is refused by each call.
func (b *bank[DB]) refusesOtherEngines(t *testing.T) {
	t.Helper()
	for _, engine := range []string{"MyISAM", "MEMORY"} {
		b.exec(t, "CREATE TABLE in_"+engine+" (id BIGINT PRIMARY KEY, version BIGINT NOT NULL DEFAULT 1, balance INT NOT NULL DEFAULT 0) ENGINE="+engine)
		b.exec(t, "INSERT INTO in_"+engine+" (id) VALUES (1), (2)")
		table, set := b.ints(t, "in_"+engine), optimistic.Set{"balance": 1}
		_, update := table.Update(t.Context(), b.db, 1, 1, set)
		_, many := table.UpdateMany(t.Context(), b.db, []optimistic.Change[int64]{{Key: 1, Expected: 1, Set: set}}, optimistic.EachRow)
		for call, err := range map[string]error{"Check": table.Check(t.Context(), b.db), "Update": update, "UpdateMany": many} {
			badInput(t, engine+": "+call, err)
			if err != nil && !strings.Contains(err.Error(), "ENGINE=InnoDB") {
				t.Errorf("%s: %s: %v does not say what to do", engine, call, err)
			}
		}
	}
}

// tableAltersAsTold: a column made as the error says is good for use.
func tableAltersAsTold[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.exec(t, "CREATE TABLE plain (id BIGINT PRIMARY KEY)")
	for column, check := range map[string]func(context.Context, DB) error{
		"number": sure(b.e.Int("plain", "id", optimistic.Int("number")))(t).Check,
		"at":     sure(b.e.Time("plain", "id", optimistic.Timestamp("at")))(t).Check,
		"tag":    sure(b.e.UUID("plain", "id", optimistic.UUID("tag")))(t).Check,
	} {
		err := check(ctx, b.db)
		badInput(t, column, err)
		_, definition, told := strings.Cut(err.Error(), "ALTER TABLE and add it, ")
		if !told {
			t.Fatalf("%v does not tell what to add", err)
		}
		b.exec(t, "ALTER TABLE plain ADD COLUMN "+column+" "+definition)
		require.NoError(t, check(ctx, b.db), definition)
	}
}

// tableRefusesBadVersions: a row that has 0 or NULL for its version is written by nobody, and the error says why.
func tableRefusesBadVersions[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	set := optimistic.Set{"balance": 5}
	ints := b.ints(t, "account")
	require.NoError(t, ints.Check(ctx, b.db), "check")
	for _, bad := range []string{"0", "-3", "NULL"} {
		if bad == "NULL" { // altered after the table was checked
			b.exec(t, b.by("ALTER TABLE account ALTER version DROP NOT NULL", "ALTER TABLE account MODIFY version BIGINT NULL"))
		}
		b.exec(t, "UPDATE account SET version = "+bad+" WHERE id = 1")
		_, err := ints.Update(ctx, b.db, 1, 1, set)
		badInput(t, bad, err)
		_, err = ints.Version(ctx, b.db, 1)
		badInput(t, bad, err)
		badInput(t, bad, ints.Delete(ctx, b.db, 1, 7))
		_, err = ints.UpdateMany(ctx, b.db, []optimistic.Change[int64]{{Key: 1, Expected: 1, Set: set}}, optimistic.AllOrNothing)
		badInput(t, bad+" of many", err)
		_, err = ints.Any().Update(ctx, b.db, 1, set)
		badInput(t, bad+", blindly", err)
	}
	tags := sure(b.e.UUID("account", "id", optimistic.UUID("tag")))(t)
	b.exec(t, "UPDATE account SET tag = "+b.by("'00000000-0000-0000-0000-000000000000'", "REPEAT(CHAR(0), 16)")+" WHERE id = 1")
	_, err := tags.Update(ctx, b.db, 1, [16]byte{1}, set)
	badInput(t, "the nil UUID", err)
	if n := b.number(t, "SELECT balance FROM account WHERE id = 1"); n != 0 {
		t.Errorf("the balance is %d", n)
	}

	b.exec(t, "CREATE TABLE small (id BIGINT PRIMARY KEY, balance INT, version SMALLINT NOT NULL)")
	b.exec(t, "INSERT INTO small VALUES (1, 0, 32766)")
	small := b.ints(t, "small")
	last := sure(small.Update(ctx, b.db, 1, 32766, set))(t)
	_, err = small.Update(ctx, b.db, 1, last, set)
	badInput(t, "the last version", err)
}

// nonUniqueKey: a key of two rows writes neither.
func nonUniqueKey[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.exec(t, "CREATE TABLE twin (id BIGINT, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)")
	b.exec(t, "CREATE INDEX twin_id ON twin (id)")
	b.exec(t, "INSERT INTO twin VALUES (1, 0, 1), (1, 0, 1), (2, 0, 1)")
	twin := b.ints(t, "twin")
	set := optimistic.Set{"balance": 5}
	_, err := twin.Update(ctx, b.db, 1, 1, set)
	var many *optimistic.TooManyError
	if !errors.As(err, &many) || !errors.Is(err, optimistic.ErrTooMany) || many.Rows < 2 {
		t.Errorf("a key of two rows: %v", err)
	}
	if err := twin.Delete(ctx, b.db, 1, 1); !errors.Is(err, optimistic.ErrTooMany) {
		t.Errorf("delete: %v", err)
	}
	_, err = twin.UpdateMany(ctx, b.db, []optimistic.Change[int64]{{Key: 1, Expected: 1, Set: set}}, optimistic.EachRow)
	if !errors.Is(err, optimistic.ErrTooMany) {
		t.Errorf("many: %v", err)
	}
	_, err = twin.Any().Update(ctx, b.db, 1, set)
	if !errors.Is(err, optimistic.ErrTooMany) {
		t.Errorf("blindly: %v", err)
	}
	_, err = twin.Update(ctx, b.db, 2, 1, set) // of one row today
	badInput(t, "a key that is not unique", err)
	if n := b.number(t, "SELECT count(*) FROM twin WHERE balance = 0 AND version = 1"); n != 3 {
		t.Errorf("%d rows of 3 are as they were", n)
	}
	b.exec(t, "DELETE FROM twin WHERE id = 1")
	b.exec(t, "CREATE UNIQUE INDEX twin_one ON twin (id)")
	sure(twin.Update(ctx, b.db, 2, 1, set))(t)

	// An index that is dropped while it is relied on is told by the rows that were hit.
	b.exec(t, b.by("DROP INDEX twin_one", "DROP INDEX twin_one ON twin"))
	b.exec(t, "INSERT INTO twin VALUES (2, 0, 2)")
	tx := b.tx(t, sql.LevelReadCommitted)
	if _, err = twin.Update(ctx, tx.DB, 2, 2, set); !errors.Is(err, optimistic.ErrTooMany) {
		t.Errorf("after the index was dropped: %v", err)
	}
	require.NoError(t, tx.Rollback(), "rollback")
	if _, err = twin.Update(ctx, b.db, 2, 2, set); !errors.Is(err, optimistic.ErrTooMany) {
		t.Errorf("the next one: %v", err)
	}
}

// tableChecksOnce: a failed check is not kept, and one that was passed is.
func tableChecksOnce[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	table := b.ints(t, "soon")
	_, err := table.Version(ctx, b.db, 1)
	badInput(t, "before it was made", err)
	b.fresh(t, "soon", 1)
	if v := sure(table.Version(ctx, b.db, 1))(t); v != 1 {
		t.Fatalf("it is at %d", v)
	}
	other := b.ints(t, "account")
	tx := b.tx(t, sql.LevelReadCommitted)
	require.NoError(t, tx.Rollback(), "rollback")
	if err := other.Check(ctx, tx.DB); err == nil || errors.Is(err, dblock.ErrInvalid) {
		t.Fatalf("in a transaction that has ended: %v", err)
	}
	require.NoError(t, other.Check(ctx, b.db), "check after a failed one")

	// A table that was altered is looked at anew after an error.
	b.exec(t, "ALTER TABLE soon DROP COLUMN version")
	if _, err := table.Update(ctx, b.db, 1, 1, optimistic.Set{"balance": 1}); err == nil {
		t.Fatal("written without a version")
	}
	_, err = table.Update(ctx, b.db, 1, 1, optimistic.Set{"balance": 1})
	badInput(t, "after it was altered", err)
}
