package optimistic

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

func (tests[DB]) NamesAreTakenAsTheyAre(t *testing.T, b *env[DB]) {
	ctx, q := t.Context(), b.by(`"`, "`")
	other := "odd ; schema"
	if b.Postgres() {
		b.Exec(t, `CREATE SCHEMA "odd ; schema"`)
	} else {
		other = b.Text(t, "SELECT DATABASE()")
	}
	name := func(s string) string { return q + strings.ReplaceAll(s, q, q+q) + q }
	const table, key, version, value = "a \"b\" `c` 'd'", "the \"key\" `k`", "the `version` \"v\"", "WHERE \"x\" = `y` ? $1"
	b.Exec(t, "CREATE TABLE "+name(other)+"."+name(table)+" ("+name(key)+" VARCHAR(20) PRIMARY KEY, "+name(version)+
		" BIGINT NOT NULL DEFAULT 1, "+name(value)+" VARCHAR(20))")
	odd := must(b.e.Int(other+"."+table, key, optimistic.Int(version)))(t)
	require.NoError(t, odd.Check(ctx, b.db))
	v := must(odd.Upsert(ctx, b.db, "o'k\\", optimistic.Absent[int64](), set{value: "'; --"}))(t)
	v = must(odd.Update(ctx, b.db, "o'k\\", v, set{value: "\" ` '"}))(t)
	v = must(odd.Touch(ctx, b.db, "o'k\\", v))(t)
	must(odd.UpdateMany(ctx, b.db, []change{{Key: "o'k\\", Expected: v, Set: set{value: "x"}}}, optimistic.UpdateEachRow))(t)
	require.NoError(t, odd.Delete(ctx, b.db, "o'k\\", v+1))
	both := must(b.e.Values(other+"."+table, key, optimistic.Columns(value)))(t)
	must(both.Upsert(ctx, b.db, "k", optimistic.Absent[values](), set{value: "x"}))(t)
	must(both.Update(ctx, b.db, "k", values{value: "x"}, set{value: "y"}))(t)
}

// RefusesBadInput is of what is known of the table, and of what the server would compare in its own
// way. Package optimistic tests what needs no table.
func (tests[DB]) RefusesBadInput(t *testing.T, b *env[DB]) {
	ctx, table, five := t.Context(), b.ints(t, "account"), set{"balance": 5}
	// A statement of two columns, which is kept, is not taken for one of a column whose name looks
	// like both.
	must(table.Any().Update(ctx, b.db, 10, set{"balance": 0, "note": nil}))(t)
	bad := []change{
		{Key: 1, Expected: 1, Set: set{"nothing": 7}}, {Key: 1, Expected: 1, Set: set{"": 7}}, {Key: 1, Expected: 1, Set: set{"id": 7}},
		{Key: 1, Expected: 1, Set: set{"version": 7}},
	}
	for _, column := range []string{"balance\" = 7, \"note", "balance` = 7, `note", "balance\x00", "balance\x00note", "balance\x04note"} {
		bad = append(bad, change{Key: 1, Expected: 1, Set: set{column: 7}})
	}
	if !b.Postgres() { // there VERSION would be a column of its own, and keys are compared by type
		bad = append(bad, change{Key: 1, Expected: 1, Set: set{"VERSION": 7}})
		for _, key := range []any{"1", "1 or so", true, []byte("1")} {
			bad = append(bad, change{Key: key, Expected: 1, Set: five})
		}
	}
	for _, c := range bad {
		badInput(t, fmt.Sprint(c), errOf(table.Update(ctx, b.db, c.Key, c.Expected, c.Set)))
		badInput(t, fmt.Sprint("of many: ", c), errOf(table.UpdateMany(ctx, b.db, []change{c}, optimistic.UpdateEachRow)))
	}
	twice := []change{{Key: 1, Expected: 1, Set: five}, {Key: int64(1), Expected: 1, Set: five}}
	badInput(t, "a key twice", errOf(table.UpdateMany(ctx, b.db, twice, optimistic.UpdateEachRow)))
	columns := b.columns(t, "account", "balance", "note")
	badInput(t, "some of the columns", errOf(columns.Upsert(ctx, b.db, 34, optimistic.Absent[values](), five)))
	badInput(t, "blindly, some of the columns", errOf(columns.Any().Update(ctx, b.db, 1, five)))
	b.is(t, 0, "SELECT count(*) FROM account WHERE balance <> 0 OR version <> 1 AND id < 10 OR note IS NOT NULL")
}

// RefusesBadTables: what is wrong with a table is said before anything is written, with what to do.
func (tests[DB]) RefusesBadTables(t *testing.T, b *env[DB]) {
	ctx := t.Context()
	b.Exec(t, "CREATE TABLE odd (id BIGINT PRIMARY KEY, nullable BIGINT DEFAULT 1, label VARCHAR(20) NOT NULL, half DOUBLE PRECISION, doc JSON, "+
		b.by("second TIMESTAMPTZ(0) NOT NULL, milli TIMESTAMP(3) NOT NULL)", "second DATETIME NOT NULL, milli DATETIME(3) NOT NULL)"))
	b.Exec(t, "CREATE VIEW seen AS SELECT * FROM account")
	ints := func(table, key, column string) error {
		return must(b.e.Int(table, key, optimistic.Int(column)))(t).Check(ctx, b.db)
	}
	for says, errs := range map[string][]error{
		"no table":             {ints("nothing", "id", "version"), ints("nowhere.nothing", "id", "version")},
		"no column":            {ints("account", "nokey", "version"), b.columns(t, "odd", "label", "nothing").Check(ctx, b.db)},
		"ALTER TABLE":          {ints("account", "id", "nover"), b.tags(t, "odd", "label").Check(ctx, b.db)},
		"NOT NULL":             {ints("odd", "id", "nullable")},
		"BIGINT":               {ints("odd", "id", "label")},
		"0 digits of a second": {b.times(t, "odd", "second").Check(ctx, b.db)},
		"3 digits of a second": {b.times(t, "odd", "milli").Check(ctx, b.db)},
		"":                     {ints("seen", "id", "version")},
		"unique index":         {ints("account", "balance", "version")},
		"exactly":              {b.columns(t, "odd", "label", "half").Check(ctx, b.db)},
	} {
		for _, err := range errs {
			badInput(t, says, err, says)
		}
	}
	if b.Kind != devdb.MariaDB { // where JSON is a text, and compared as one
		badInput(t, "JSON", b.columns(t, "odd", "doc").Check(ctx, b.db))
	}
	if !b.Postgres() {
		b.Exec(t, "CREATE TABLE zoned (id BIGINT PRIMARY KEY, at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))")
		badInput(t, "TIMESTAMP", b.times(t, "zoned", "at").Check(ctx, b.db))
		badInput(t, "TIMESTAMP", b.columns(t, "zoned", "at").Check(ctx, b.db))
		b.refusesOtherEngines(t)
		return
	}
	b.Exec(t, "CREATE TABLE parted (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1) PARTITION BY HASH (id)")
	b.Exec(t, "CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
	parted := b.ints(t, "parted")
	v := must(parted.Upsert(ctx, b.db, 1, optimistic.Absent[int64](), set{"balance": 1}))(t)
	must(parted.Update(ctx, b.db, 1, v, set{"balance": 1}))(t)
	b.Exec(t, "CREATE TABLE heir () INHERITS (account)")
	badInput(t, "inherited", ints("account", "id", "version"))
	b.Exec(t, "CREATE TABLE part (id BIGINT, version BIGINT NOT NULL DEFAULT 1, UNIQUE (id, version))")
	b.Exec(t, "CREATE UNIQUE INDEX part_some ON part (id) WHERE version > 5")
	badInput(t, "partial", ints("part", "id", "version"))
	b.Exec(t, "CREATE TABLE later (id BIGINT UNIQUE DEFERRABLE, version BIGINT NOT NULL DEFAULT 1)")
	badInput(t, "deferrable", ints("later", "id", "version"))
}

// refusesOtherEngines: a table that rolls nothing back and locks no row is refused by each call.
func (b *env[DB]) refusesOtherEngines(t *testing.T) {
	t.Helper()
	ctx, one := t.Context(), set{"balance": 1}
	for _, engine := range []string{"MyISAM", "MEMORY"} {
		b.Exec(t, "CREATE TABLE in_"+engine+" (id BIGINT PRIMARY KEY, version BIGINT NOT NULL DEFAULT 1, balance INT NOT NULL DEFAULT 0) ENGINE="+engine)
		b.insert(t, "in_"+engine, 2)
		table := b.ints(t, "in_"+engine)
		for call, err := range map[string]error{
			"Check": table.Check(ctx, b.db), "Update": errOf(table.Update(ctx, b.db, 1, 1, one)),
			"UpdateMany": errOf(table.UpdateMany(ctx, b.db, []change{{Key: 1, Expected: 1, Set: one}}, optimistic.UpdateEachRow)),
		} {
			badInput(t, engine+": "+call, err, "ENGINE=InnoDB")
		}
	}
}

// AltersAsTold: a column made as the error says is good for use.
func (tests[DB]) AltersAsTold(t *testing.T, b *env[DB]) {
	b.Exec(t, "CREATE TABLE plain (id BIGINT PRIMARY KEY)")
	for column, check := range map[string]func(context.Context, DB) error{
		"number": must(b.e.Int("plain", "id", optimistic.Int("number")))(t).Check,
		"at":     b.times(t, "plain", "at").Check,
		"tag":    b.tags(t, "plain", "tag").Check,
	} {
		err := check(t.Context(), b.db)
		badInput(t, column, err)
		_, definition, told := strings.Cut(err.Error(), "ALTER TABLE and add it, ")
		require.True(t, told, err)
		b.Exec(t, "ALTER TABLE plain ADD COLUMN "+column+" "+definition)
		require.NoError(t, check(t.Context(), b.db), definition)
	}
}

// RefusesBadVersions: a row that has 0 or NULL for its version is never written, and the error says
// why.
func (tests[DB]) RefusesBadVersions(t *testing.T, b *env[DB]) {
	ctx, five, ints := t.Context(), set{"balance": 5}, b.ints(t, "account")
	require.NoError(t, ints.Check(ctx, b.db))
	for _, bad := range []string{"0", "-3", "NULL"} {
		if bad == "NULL" { // altered after the table was checked
			b.Exec(t, b.by("ALTER TABLE account ALTER version DROP NOT NULL", "ALTER TABLE account MODIFY version BIGINT NULL"))
		}
		b.Exec(t, "UPDATE account SET version = "+bad+" WHERE id = 1")
		badInput(t, bad, errOf(ints.Update(ctx, b.db, 1, 1, five)))
		badInput(t, bad, errOf(ints.Version(ctx, b.db, 1)))
		badInput(t, bad, ints.Delete(ctx, b.db, 1, 7))
		badInput(t, bad, errOf(ints.UpdateMany(ctx, b.db, []change{{Key: 1, Expected: 1, Set: five}}, optimistic.UpdateAllOrNothing)))
		badInput(t, bad, errOf(ints.Any().Update(ctx, b.db, 1, five)))
	}
	b.Exec(t, "UPDATE account SET tag = "+b.by("'00000000-0000-0000-0000-000000000000'", "REPEAT(CHAR(0), 16)")+" WHERE id = 1")
	badInput(t, "the nil UUID", errOf(b.tags(t, "account", "tag").Update(ctx, b.db, 1, [16]byte{1}, five)))
	b.is(t, 0, "SELECT balance FROM account WHERE id = 1")

	b.Exec(t, "CREATE TABLE small (id BIGINT PRIMARY KEY, balance INT, version SMALLINT NOT NULL)")
	b.Exec(t, "INSERT INTO small VALUES (1, 0, 32766)")
	small := b.ints(t, "small")
	last := must(small.Update(ctx, b.db, 1, 32766, five))(t)
	badInput(t, "the last version", errOf(small.Update(ctx, b.db, 1, last, five)))

	// Rails and Hibernate insert rows at version 0.
	one, zero := must(b.e.Int("account", "id", optimistic.Int("lock_version")))(t), must(b.e.Int("account", "id", optimistic.IntFromZero("lock_version")))(t)
	badInput(t, "the version 0", errOf(one.Update(ctx, b.db, 6, 0, five)), "IntFromZero")
	badInput(t, "a row at 0", errOf(one.Update(ctx, b.db, 6, 1, five)), "IntFromZero")
	badInput(t, "a version below 0", errOf(zero.Update(ctx, b.db, 6, -1, five)))
	b.Exec(t, "UPDATE account SET lock_version = -1 WHERE id = 6")
	badInput(t, "a row below 0", errOf(zero.Any().Update(ctx, b.db, 6, five)))
	b.is(t, 0, "SELECT balance FROM account WHERE id = 6")
	b.Exec(t, "CREATE TABLE bare (id BIGINT PRIMARY KEY)")
	badInput(t, "no version", must(b.e.Int("bare", "id", optimistic.IntFromZero("lock_version")))(t).Check(ctx, b.db), "DEFAULT 0")
}

// NonUniqueKey: a key of two rows writes neither.
func (tests[DB]) NonUniqueKey(t *testing.T, b *env[DB]) {
	ctx, five := t.Context(), set{"balance": 5}
	b.Exec(t, "CREATE TABLE twin (id BIGINT, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)")
	b.Exec(t, "CREATE INDEX twin_id ON twin (id)")
	b.Exec(t, "INSERT INTO twin VALUES (1, 0, 1), (1, 0, 1), (2, 0, 1)")
	twin := b.ints(t, "twin")
	for what, err := range map[string]error{
		"update": errOf(twin.Update(ctx, b.db, 1, 1, five)), "delete": twin.Delete(ctx, b.db, 1, 1),
		"many":    errOf(twin.UpdateMany(ctx, b.db, []change{{Key: 1, Expected: 1, Set: five}}, optimistic.UpdateEachRow)),
		"blindly": errOf(twin.Any().Update(ctx, b.db, 1, five)),
	} {
		assert.ErrorIs(t, err, optimistic.ErrTooMany, what)
		assert.GreaterOrEqual(t, suite.As[*optimistic.TooManyError](t, err).Rows, int64(2), what)
	}
	badInput(t, "a key that is not unique, of one row today", errOf(twin.Update(ctx, b.db, 2, 1, five)))
	b.is(t, 3, "SELECT count(*) FROM twin WHERE balance = 0 AND version = 1")
	b.Exec(t, "DELETE FROM twin WHERE id = 1")
	b.Exec(t, "CREATE UNIQUE INDEX twin_one ON twin (id)")
	must(twin.Update(ctx, b.db, 2, 1, five))(t)

	// The rows that were hit show an index that is dropped while it is relied on.
	b.Exec(t, b.by("DROP INDEX twin_one", "DROP INDEX twin_one ON twin"))
	b.Exec(t, "INSERT INTO twin VALUES (2, 0, 2)")
	tx := b.tx(t, sql.LevelReadCommitted)
	assert.ErrorIs(t, errOf(twin.Update(ctx, tx.DB, 2, 2, five)), optimistic.ErrTooMany, "after the index was dropped")
	require.NoError(t, tx.Rollback())
	assert.ErrorIs(t, errOf(twin.Update(ctx, b.db, 2, 2, five)), optimistic.ErrTooMany, "the next one")
}

// ChecksOnce: a failed check is not kept, and one that was passed is.
func (tests[DB]) ChecksOnce(t *testing.T, b *env[DB]) {
	ctx, table, other := t.Context(), b.ints(t, "soon"), b.ints(t, "account")
	badInput(t, "before it was made", errOf(table.Version(ctx, b.db, 1)))
	b.fresh(t, "soon", 1)
	assert.EqualValues(t, 1, must(table.Version(ctx, b.db, 1))(t))
	tx := b.tx(t, sql.LevelReadCommitted)
	require.NoError(t, tx.Rollback())
	err := other.Check(ctx, tx.DB)
	assert.Error(t, err, "in a transaction that has ended")
	assert.NotErrorIs(t, err, dblock.ErrInvalid)
	require.NoError(t, other.Check(ctx, b.db), "after a failed one")

	// A table that was altered is looked at anew after an error.
	b.Exec(t, "ALTER TABLE soon DROP COLUMN version")
	require.Error(t, errOf(table.Update(ctx, b.db, 1, 1, set{"balance": 1})))
	badInput(t, "after it was altered", errOf(table.Update(ctx, b.db, 1, 1, set{"balance": 1})))
}
