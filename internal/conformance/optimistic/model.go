package optimistic

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

// modelRow is an account as it should be.
type modelRow[V any] struct {
	exists  bool
	version V
	balance int64
	note    any
}

// model is a table of accounts as it should be, beside a Table.
type model[V, DB any] struct {
	table *optimistic.Table[V, DB]
	rand  *rand.Rand
	rows  map[int64]modelRow[V]
	seen  []V    // versions that rows have had
	odd   string // a text that is not ASCII

	// follows reports whether a write may have given a row its version.
	follows func(was, now modelRow[V]) bool
}

const modelKeys, modelSteps = 5, 30

// Contract makes random calls on tables with each kind of version, with and without triggers, on a
// pool and in transactions. Each returns what the model says.
func (tests[DB]) Contract(t *testing.T, b *env[DB]) {
	for _, from := range []string{"", "1", "1700000000000000"} { // the latter might pass for a time, in microseconds
		contractWith(t, b, from)
	}
}

func contractWith[DB any](t *testing.T, b *env[DB], from string) {
	runModel(t, b, from, "", b.ints(t, "account"), func(was, now modelRow[int64]) bool { return now.version == was.version+1 })
	fromZero := must(b.e.Int("account", "id", optimistic.IntFromZero("lock_version")))(t)
	runModel(t, b, from, "", fromZero, func(was, now modelRow[int64]) bool {
		return was.exists && now.version == was.version+1 || !was.exists && now.version == 0
	})
	later := func(was, now modelRow[time.Time]) bool { return !was.exists || now.version.After(was.version) }
	runModel(t, b, from, "", b.times(t, "account", "changed"), later)
	other := func(was, now modelRow[[16]byte]) bool { return now.version != was.version }
	runModel(t, b, from, "", b.tags(t, "account", "tag"), other)
	columns := b.columns(t, "account", "balance", "note")
	runModel(t, b, from, "", columns, func(_, now modelRow[values]) bool {
		return assert.ObjectsAreEqual(values{"balance": now.balance, "note": now.note}, now.version)
	})
	if b.Postgres() {
		runModel(t, b, from, "ALTER TABLE account ALTER changed TYPE TIMESTAMP(6)", b.times(t, "account", "changed"), later)
		return
	}
	types := []string{"CHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"}
	if b.Kind == devdb.MariaDB {
		types = append(types, "UUID")
	}
	for _, typ := range types {
		runModel(t, b, from, "ALTER TABLE account DROP COLUMN tag, ADD COLUMN tag "+typ+
			" NOT NULL DEFAULT '0A2F6B4E-7C1D-4E2F-8A3B-1C2D3E4F5A6B'", b.tags(t, "account", "tag"), other)
	}
}

// audited makes a fresh table of accounts. Each write inserts rows into a table that numbers its
// rows by itself, before and after the write. The numbers begin at from.
func (b *env[DB]) audited(t *testing.T, from string) {
	t.Helper()
	b.fresh(t, "account", modelKeys)
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

// runModel makes the calls: with triggers whose numbers begin at from, unless that is empty.
func runModel[V, DB any](t *testing.T, b *env[DB], from, alter string, table *optimistic.Table[V, DB], follows func(was, now modelRow[V]) bool) {
	t.Helper()
	if from == "" {
		b.fresh(t, "account", modelKeys)
	} else {
		b.audited(t, from)
	}
	if alter != "" {
		b.Exec(t, alter)
	}
	seed, odd := suite.SeedOf(t), "ä"
	if strings.Contains(b.dsn, "latin1") {
		odd = "a" // compare reads by another character set
	}
	m := &model[V, DB]{table: table, odd: odd, follows: follows, rand: rand.New(rand.NewPCG(seed, seed)), rows: map[int64]modelRow[V]{}}
	for key := range int64(modelKeys) {
		m.rows[key+1] = modelRow[V]{exists: true, version: must(table.Version(t.Context(), b.db, key+1))(t)}
		m.seen = append(m.seen, m.rows[key+1].version)
	}
	m.run(t, b.db)
	m.compare(t, b)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		before, tx := maps.Clone(m.rows), b.tx(t, level)
		m.run(t, tx.DB)
		if m.rand.IntN(2) == 0 {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
			m.rows = before
		}
		m.compare(t, b)
		err := errOf(table.Version(t.Context(), tx.DB, 1))
		assert.Error(t, err, "in a transaction that has ended")
		assert.NotErrorIs(t, err, dblock.ErrOutcomeUnknown)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, table.Any().Delete(ended, b.db, 1), context.Canceled)
}

// compare fails unless the table is as the model.
func (m *model[V, DB]) compare(t *testing.T, b interface {
	Texts(t *testing.T, query string, args ...any) []string
}) {
	t.Helper()
	var want []string
	for key := range int64(modelKeys) {
		if row := m.rows[key+1]; row.exists && row.note == nil {
			want = append(want, fmt.Sprintf("%d|%d|NULL", key+1, row.balance))
		} else if row.exists {
			want = append(want, fmt.Sprintf("%d|%d|%s", key+1, row.balance, row.note))
		}
	}
	require.Equal(t, want, b.Texts(t, "SELECT CONCAT_WS('|', id, balance, COALESCE(note, 'NULL')) FROM account ORDER BY id"))
}

func (m *model[V, DB]) run(t *testing.T, db DB) {
	t.Helper()
	for range modelSteps {
		if m.rand.IntN(4) == 0 {
			m.many(t, db)
		} else {
			m.once(t, db)
		}
	}
}

// draw draws a value.
func draw[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// drawSet draws what to write: all of the columns, or some.
func (m *model[V, DB]) drawSet(all bool) set {
	s := set{"balance": draw[int64](m.rand, 0, 0, 1, 9007199254740992, 9007199254740993)} // as floats the last ones would be the same
	note := draw[any](m.rand, nil, nil, "a", "A", "a ", "", m.odd, `a 'note' \`)
	if all || m.rand.IntN(3) > 0 {
		s["note"] = note
	}
	if !all && len(s) == 2 && m.rand.IntN(2) == 0 {
		delete(s, "balance")
	}
	return s
}

// drawVersion draws a version to expect of a row, which may be its own.
func (m *model[V, DB]) drawVersion(key int64) (v V, current bool) {
	row := m.rows[key]
	if v = draw(m.rand, m.seen...); row.exists && m.rand.IntN(2) == 0 {
		v = row.version
	}
	return v, row.exists && assert.ObjectsAreEqual(row.version, v)
}

// wrote notes that a row has a set and a version.
func (m *model[V, DB]) wrote(t *testing.T, what string, key int64, s set, version V) {
	t.Helper()
	was := m.rows[key]
	now := modelRow[V]{true, version, was.balance, was.note}
	if balance, ok := s["balance"]; ok {
		now.balance = balance.(int64)
	}
	if note, ok := s["note"]; ok {
		now.note = note
	}
	require.True(t, m.follows(was, now), "%s: %+v became %+v", what, was, now)
	m.rows[key], m.seen = now, append(m.seen, version)
}

// once makes a call for one row.
func (m *model[V, DB]) once(t *testing.T, db DB) {
	t.Helper()
	ctx, n := t.Context(), m.rand.Int64N(modelKeys)+1
	key := draw[any](m.rand, n, int(n), int32(n))
	expected, current := m.drawVersion(n)
	row, some, all, absent := m.rows[n], m.drawSet(false), m.drawSet(true), optimistic.Absent[V]()
	_, unversioned := any(expected).(values)
	type call struct {
		what string
		set  set
		run  func() (V, error)
		ok   bool
	}
	var none V
	calls := []call{
		{"Update", some, func() (V, error) { return m.table.Update(ctx, db, key, expected, some) }, current},
		{"Upsert At", some, func() (V, error) { return m.table.Upsert(ctx, db, key, optimistic.At(expected), some) }, current},
		{"Delete", nil, func() (V, error) { return none, m.table.Delete(ctx, db, key, expected) }, current},
		{"Upsert Absent", all, func() (V, error) { return m.table.Upsert(ctx, db, key, absent, all) }, !row.exists},
		{"Any Update", all, func() (V, error) { return m.table.Any().Update(ctx, db, key, all) }, row.exists},
		{"Any Upsert", all, func() (V, error) { return m.table.Any().Upsert(ctx, db, key, all) }, true},
		{"Any Delete", nil, func() (V, error) { return none, m.table.Any().Delete(ctx, db, key) }, row.exists},
		{"Touch", nil, func() (V, error) { return m.table.Touch(ctx, db, key, expected) }, current},
		{"Any Touch", nil, func() (V, error) { return m.table.Any().Touch(ctx, db, key) }, row.exists},
	}
	if unversioned {
		calls = calls[:len(calls)-2]
	}
	c := draw(m.rand, calls...)
	got, err := c.run()
	what := fmt.Sprintf("%s of %+v, expected %v, set %v", c.what, row, expected, c.set)
	switch {
	case !c.ok && c.what == "Upsert Absent":
		conflicts(t, what, err, absent, row.version)
	case !c.ok && !row.exists:
		missing(t, what, err)
	case !c.ok:
		conflicts(t, what, err, expected, row.version)
	case c.what == "Delete" || c.what == "Any Delete":
		require.NoError(t, err, what)
		m.rows[n] = modelRow[V]{}
	default:
		require.NoError(t, err, what)
		m.wrote(t, what, n, c.set, got)
	}
	if version, err := m.table.Version(ctx, db, key); m.rows[n].exists {
		require.NoError(t, err, what)
		require.Equal(t, m.rows[n].version, version, what)
	} else {
		missing(t, what, err)
	}
}

// many makes a call for several rows.
func (m *model[V, DB]) many(t *testing.T, db DB) {
	t.Helper()
	var changes []optimistic.Change[V]
	var want []optimistic.Verdict
	count := map[optimistic.Verdict]int{}
	for _, n := range m.rand.Perm(modelKeys)[:1+m.rand.IntN(4)] {
		key, verdict := int64(n+1), optimistic.VerdictStale
		expected, current := m.drawVersion(key)
		if current {
			verdict = optimistic.VerdictUpdated
		} else if !m.rows[key].exists {
			verdict = optimistic.VerdictNotFound
		}
		changes = append(changes, optimistic.Change[V]{Key: key, Expected: expected, Set: m.drawSet(true)})
		want = append(want, verdict)
		count[verdict]++
	}
	mode := draw(m.rand, optimistic.UpdateAllOrNothing, optimistic.UpdateEachRow)
	outcomes, err := m.table.UpdateMany(t.Context(), db, changes, mode)
	what := fmt.Sprintf("UpdateMany in mode %v of %+v, set %+v", mode, m.rows, changes)
	if mode == optimistic.UpdateAllOrNothing && count[optimistic.VerdictUpdated] < len(changes) {
		require.Nil(t, outcomes, what)
		for verdict, class := range map[optimistic.Verdict]error{optimistic.VerdictStale: optimistic.ErrStale, optimistic.VerdictNotFound: optimistic.ErrNotFound} {
			if count[verdict] > 0 {
				require.ErrorIs(t, err, class, what)
			}
		}
		require.NotErrorIs(t, err, dblock.ErrConflict, what)
		return
	}
	require.NoError(t, err, what)
	for i, o := range outcomes {
		key := changes[i].Key.(int64)
		require.Equal(t, []any{want[i], changes[i].Key, want[i] == optimistic.VerdictUpdated}, []any{o.Verdict, o.Key, o.Err == nil}, what)
		switch o.Verdict {
		case optimistic.VerdictUpdated:
			m.wrote(t, what, key, changes[i].Set, o.Version)
		case optimistic.VerdictStale:
			conflicts(t, what, o.Err, changes[i].Expected, m.rows[key].version)
			require.Equal(t, m.rows[key].version, o.Version, what)
		default:
			missing(t, what, o.Err)
		}
	}
}
