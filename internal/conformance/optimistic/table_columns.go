package optimistic

import (
	"database/sql"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/optimistic"
)

// columnsCompare: only the named columns count, NULL like any other value, and texts byte by byte.
func columnsCompare[DB any](t *testing.T, b *tables[DB]) {
	ctx := t.Context()
	b.fresh(t, "account", 3)
	table := b.columns(t, "account", "balance", "note")
	was := must(table.Version(ctx, b.db, 1))(t)
	require.Equal(t, values{"note": nil, "balance": int64(0)}, was)
	now := must(table.Update(ctx, b.db, 1, was, set{"note": "a"}))(t)
	a := values{"note": "a", "balance": int64(0)}
	require.Equal(t, a, now)
	conflicts(t, "NULL against a text", errOf(table.Update(ctx, b.db, 1, was, set{"balance": 9})), was, a)
	for _, note := range []any{"A", "a ", "", "ä", nil} {
		other := values{"note": note, "balance": 0}
		conflicts(t, "another text", errOf(table.Update(ctx, b.db, 1, other, set{"balance": 9})), other, a)
		conflicts(t, "another text", table.Delete(ctx, b.db, 1, other), other, a)
	}
	b.Exec(t, "UPDATE account SET version = 7 WHERE id = 1") // which is not compared
	now = must(table.Update(ctx, b.db, 1, now, set{"note": nil, "balance": 1}))(t)
	now = must(table.Update(ctx, b.db, 1, now, set{"version": 8}))(t)
	great, greater := int64(9007199254740992), int64(9007199254740993) // as floats they would be the same
	b.Exec(t, "UPDATE account SET balance = 9007199254740993 WHERE id = 1")
	conflicts(t, "great numbers", errOf(table.Update(ctx, b.db, 1, values{"note": nil, "balance": great}, set{"note": "b"})),
		values{"note": nil, "balance": great}, values{"note": nil, "balance": greater})
	missing(t, "no row", errOf(table.Update(ctx, b.db, 99, now, set{"note": "b"})))
	blind := must(table.Any().Update(ctx, b.db, 1, set{"note": "b", "balance": 3}))(t)
	badInput(t, "blindly, some of the columns", errOf(table.Any().Update(ctx, b.db, 1, set{"note": "b"})))
	require.NoError(t, table.Delete(ctx, b.db, 1, blind))
}

// writesEqualValues: a write of the values that are there is a success, and a stale one is none,
// however the server counts.
func writesEqualValues[DB any](t *testing.T, b *tables[DB], table *optimistic.Table[values, DB], db DB, key int) {
	t.Helper()
	ctx := t.Context()
	v := must(table.Version(ctx, db, key))(t)
	zero := values{"balance": int64(0), "note": nil}
	for range 3 {
		v = must(table.Update(ctx, db, key, v, set{"balance": int64(0), "version": 1}))(t)
		must(table.Any().Update(ctx, db, key, set{"balance": 0, "note": nil}))(t)
	}
	stale := values{"balance": int64(7), "note": nil}
	conflicts(t, "stale", errOf(table.Update(ctx, db, key, stale, set{"balance": int64(0)})), stale, zero)
	missing(t, "no row", errOf(table.Update(ctx, db, 99, v, set{"balance": int64(0)})))
	missing(t, "no row, blindly", errOf(table.Any().Update(ctx, db, 99, set{"balance": 0, "note": nil})))
}

func columnsEqualValues[DB any](t *testing.T, b *tables[DB]) {
	b.fresh(t, "account", 3)
	table := b.columns(t, "account", "balance", "note")
	writesEqualValues(t, b, table, b.db, 1)
	zero, one := values{"balance": int64(0), "note": nil}, values{"balance": int64(1), "note": nil}
	outcomes := must(table.UpdateMany(t.Context(), b.db, []optimistic.Change[values]{
		{Key: 1, Expected: zero, Set: set{"balance": 0}}, {Key: 2, Expected: one, Set: set{"balance": 0}},
	}, optimistic.EachRow))(t)
	assert.Equal(t, []optimistic.Verdict{optimistic.Updated, optimistic.Conflicted}, []optimistic.Verdict{outcomes[0].Verdict, outcomes[1].Verdict})
}

// columnsOfAllTypes: what was read can be given back as it is expected, and what is told of a
// write, too.
func columnsOfAllTypes[DB any](t *testing.T, b *tables[DB]) {
	ctx := t.Context()
	b.Exec(t, "DROP TABLE IF EXISTS every")
	if b.Postgres() {
		b.Exec(t, "DROP TYPE IF EXISTS mood CASCADE")
		b.Exec(t, "CREATE TYPE mood AS ENUM ('good', 'bad')")
	}
	b.Exec(t, "CREATE TABLE every (id INT PRIMARY KEY, n SMALLINT, price DECIMAL(12,2), fixed CHAR(5), long_text TEXT, day DATE, yes BOOLEAN, "+
		b.by("at TIMESTAMP, zoned TIMESTAMPTZ, u UUID, raw BYTEA, feeling mood)",
			"at DATETIME(6), zoned BIGINT UNSIGNED, u BINARY(16), raw VARBINARY(20), feeling ENUM('good', 'bad'))"))
	b.Exec(t, "INSERT INTO every VALUES (1, 5, 12.50, 'ab', 'Ünïcode \\ ''', '2024-02-29', "+
		b.by("true, '2024-02-29 01:02:03.000004', '2024-02-29 01:02:03+05', gen_random_uuid(), '\\x00ff', 'good')",
			"1, '2024-02-29 01:02:03.000004', 18446744073709551615, '0123456789abcdef', X'00ff', 'good')"))
	b.Exec(t, "INSERT INTO every (id) VALUES (2)")
	names := []string{"n", "price", "fixed", "long_text", "day", "yes", "at", "zoned", "u", "raw", "feeling"}
	table := b.columns(t, "every", names...)
	for key := 1; key <= 2; key++ {
		v := must(table.Version(ctx, b.db, key))(t)
		v = must(table.Update(ctx, b.db, key, v, set{"n": 6}))(t)
		v = must(table.Update(ctx, b.db, key, v, set{"price": "7.25", "fixed": "xy", "long_text": "'", "day": "2025-01-01", "yes": true,
			"raw": []byte{1, 0, 0xff}, "feeling": "bad"}))(t)
		must(table.UpdateMany(ctx, b.db, []optimistic.Change[values]{{Key: key, Expected: v, Set: set{"feeling": nil, "n": nil}}},
			optimistic.AllOrNothing))(t)
		v = must(table.Version(ctx, b.db, key))(t)
		for _, name := range names {
			if v[name] == nil {
				continue
			}
			stale := maps.Clone(v)
			stale[name] = nil
			conflicts(t, name, errOf(table.Update(ctx, b.db, key, stale, set{"n": 7})), stale, v)
		}
		if at, _ := v["at"].(time.Time); key == 1 {
			assert.True(t, at.Equal(time.Date(2024, 2, 29, 1, 2, 3, 4000, time.UTC)), "a time came as %v", v["at"])
		}
		require.NoError(t, table.Delete(ctx, b.db, key, v))
	}
}

// audited makes a fresh table of accounts. Each write inserts rows into a table that numbers its
// rows by itself, before and after the write. The numbers begin at from.
func (b *tables[DB]) audited(t *testing.T, from string) {
	t.Helper()
	b.fresh(t, "account", 3)
	b.Exec(t, "DROP TABLE IF EXISTS audit")
	if b.Postgres() {
		b.Exec(t, "CREATE TABLE audit (n BIGINT GENERATED ALWAYS AS IDENTITY (START "+from+") PRIMARY KEY, what TEXT)")
		b.Exec(t, "CREATE OR REPLACE FUNCTION note_write() RETURNS trigger LANGUAGE plpgsql AS "+
			"$$ BEGIN INSERT INTO audit (what) VALUES (TG_OP), (TG_WHEN); RETURN coalesce(NEW, OLD); END $$")
	} else {
		b.Exec(t, "CREATE TABLE audit (n BIGINT AUTO_INCREMENT PRIMARY KEY, what TEXT) AUTO_INCREMENT = "+from)
	}
	for _, when := range []string{"BEFORE", "AFTER"} {
		for _, what := range []string{"INSERT", "UPDATE", "DELETE"} {
			b.Exec(t, "CREATE TRIGGER "+when+"_"+what+" "+when+" "+what+" ON account FOR EACH ROW "+
				b.by("EXECUTE FUNCTION note_write()", "INSERT INTO audit (what) VALUES ('"+what+"'), ('"+when+"')"))
		}
	}
}

// triggersLeaveVersions: a write tells the version that the row has, whatever a trigger inserts
// elsewhere.
func triggersLeaveVersions[DB any](t *testing.T, b *tables[DB]) {
	for _, from := range []string{"1", "1700000000000000"} { // the latter might pass for a time, in microseconds
		b.audited(t, from)
		versionsAreTold(t, b, b.ints(t, "account"))
		versionsAreTold(t, b, b.times(t, "account", "changed"))
		versionsAreTold(t, b, b.tags(t, "account", "tag"))
	}
}

func versionsAreTold[V, DB any](t *testing.T, b *tables[DB], table *optimistic.Table[V, DB]) {
	t.Helper()
	ctx := t.Context()
	tx := b.tx(t, sql.LevelReadCommitted)
	key := 10
	for name, db := range map[string]DB{"pool": b.db, "transaction": tx.DB} {
		var v V
		told := func(version V, err error) {
			t.Helper()
			require.NoError(t, err, name)
			v = must(table.Version(ctx, db, key))(t)
			assert.Equal(t, v, version, name)
		}
		key++
		told(table.Upsert(ctx, db, key, optimistic.Absent[V](), set{"balance": 1}))
		for range 2 {
			told(table.Update(ctx, db, key, v, set{"balance": 2}))
			told(table.Touch(ctx, db, key, v))
			told(table.Any().Update(ctx, db, key, set{"balance": 3}))
			told(table.Any().Touch(ctx, db, key))
			told(table.Any().Upsert(ctx, db, key, set{"balance": 4}))
			outcomes := must(table.UpdateMany(ctx, db, []optimistic.Change[V]{{Key: key, Expected: v, Set: set{"balance": 5}}}, optimistic.AllOrNothing))(t)
			told(outcomes[0].Version, nil)
		}
		require.NoError(t, table.Delete(ctx, db, key, v))
		key++
		told(table.Any().Upsert(ctx, db, key, set{"balance": 6}))
		require.NoError(t, table.Delete(ctx, db, key, v))
	}
	require.NoError(t, tx.Rollback())
}

// triggersLeaveColumns: the same for columns that are compared, with writes that change nothing.
func triggersLeaveColumns[DB any](t *testing.T, b *tables[DB]) {
	ctx := t.Context()
	b.audited(t, "1")
	table := b.columns(t, "account", "balance", "note")
	tx := b.tx(t, sql.LevelReadCommitted)
	for key, db := range map[int]DB{1: b.db, 2: tx.DB} {
		writesEqualValues(t, b, table, db, key)
		v := must(table.Update(ctx, db, key, values{"balance": int64(0), "note": nil}, set{"balance": int64(7)}))(t)
		require.NoError(t, table.Delete(ctx, db, key, v))
	}
	require.NoError(t, tx.Rollback())
	missing(t, "after the delete", errOf(table.Update(ctx, b.db, 1, values{"balance": int64(7), "note": nil}, set{"balance": int64(7)})))
}

// blindWritesOfOneRow: each of many writes that take any version returns a version of its own, with
// triggers.
func blindWritesOfOneRow[DB any](t *testing.T, b *tables[DB]) {
	const workers, each = 8, 15
	b.audited(t, "1")
	table := b.ints(t, "account")
	require.NoError(t, table.Check(t.Context(), b.db))
	var told sync.Map
	suite.Crowd(workers, func(int) {
		for range each {
			v, err := table.Any().Update(t.Context(), b.db, 1, set{"balance": 1})
			assert.NoError(t, err)
			_, twice := told.Swap(v, true)
			assert.False(t, twice, "version %d was told twice", v)
		}
	})
	assert.EqualValues(t, 1+workers*each, must(table.Version(t.Context(), b.db, 1))(t))
}
