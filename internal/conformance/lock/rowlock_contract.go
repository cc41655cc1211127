package lock

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

var noWait = dblock.RowLock{Wait: dblock.NoWait()}

// RefusalsLeaveItUsable: what was done before a refusal stays, what comes after it works, and the
// bound of the session's waits is what it was.
func (rowTests) RefusalsLeaveItUsable(t *testing.T, v *rowEnv) {
	ctx := suite.Soon(t)
	other, tx := v.tx(t), v.tx(t)
	require.NoError(t, other.LockRow(ctx, "seat", "id", 1, dblock.RowLock{}))
	require.NoError(t, tx.Exec(ctx, "UPDATE seat SET price = 100 WHERE id = 50"))
	query := "SELECT @@SESSION.innodb_lock_wait_timeout"
	if v.Postgres() {
		require.NoError(t, tx.Exec(ctx, "SET LOCAL lock_timeout = '77s'"))
		query = "SELECT current_setting('lock_timeout')"
	}
	bound := suite.Must(tx.Text(ctx, query))(t)
	usable := func(after string) {
		t.Helper()
		assert.Equal(t, bound, suite.Must(tx.Text(ctx, query))(t), "the bound of waits after %s", after)
	}
	for wait, least := range map[dblock.TxWait]time.Duration{
		dblock.NoWait(): 0, dblock.SkipLocked(): 0, dblock.WaitAtMost(v.locks.Bound): v.locks.Bound,
	} {
		began := time.Now()
		held := isRowHeld(t, tx.LockRow(ctx, "seat", "id", 1, dblock.RowLock{Wait: wait}))
		assert.Equal(t, least > 0, held.Wait != nil, "%v", held)
		assert.True(t, time.Since(began) >= least, "refused after less than %v", least)
		usable("a refusal of one, " + wait.String())
		if wait != dblock.SkipLocked() {
			isRowHeld(t, suite.Second(tx.LockRows(ctx, "seat", "id", []int64{3, 1, 2}, dblock.RowLock{Wait: wait})))
			usable("a refusal of several, " + wait.String())
		}
	}
	rows := suite.Must(tx.LockRows(ctx, "seat", "id", []int64{999, 2, 1, 3}, dblock.RowLock{Wait: dblock.SkipLocked()}))(t)
	assert.Equal(t, dblock.LockedRows[int64]{Locked: []int64{2, 3}, Skipped: []int64{1}}, rows)
	for _, wait := range []dblock.TxWait{{}, dblock.NoWait(), dblock.WaitAtMost(v.locks.Bound)} {
		rows := suite.Must(tx.LockRows(ctx, "seat", "id", []int64{5, 999, 4}, dblock.RowLock{Wait: wait}))(t)
		assert.Equal(t, dblock.LockedRows[int64]{Locked: []int64{4, 5}}, rows)
		assert.ErrorIs(t, tx.LockRow(ctx, "seat", "id", 999, dblock.RowLock{Wait: wait}), sql.ErrNoRows)
		usable("a grant")
	}
	require.NoError(t, tx.Exec(ctx, "UPDATE seat SET price = 100 WHERE id = 51"))
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, other.Rollback(ctx))
	assert.EqualValues(t, 2, v.Exec(t, "UPDATE seat SET price = 0 WHERE price = 100"), "writes")
}

// WaitsForTheirEnd: LockRow waits for the row, or for its context.
func (rowTests) WaitsForTheirEnd(t *testing.T, v *rowEnv) {
	other := v.tx(t)
	require.NoError(t, other.LockRow(t.Context(), "seat", "id", 1, dblock.RowLock{}))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err := v.tx(t).LockRow(ctx, "seat", "id", 1, dblock.RowLock{})
	assert.ErrorIs(t, isRowHeld(t, err), context.DeadlineExceeded)
	for _, wait := range []dblock.TxWait{{}, dblock.WaitAtMost(40 * time.Second), dblock.WaitForContext()} {
		tx, ctx := v.tx(t), suite.Soon(t)
		locked := suite.Begin(func() (any, error) {
			return nil, tx.LockRow(ctx, "seat", "id", 1, dblock.RowLock{Wait: wait})
		})
		require.NoError(t, other.Commit(t.Context()))
		require.NoError(t, suite.Second(locked()))
		other = tx
	}
	v.outlastsTheServersBound(t, other)
}

// outlastsTheServersBound waits by WaitForContext for a row of holder's.
func (v *rowEnv) outlastsTheServersBound(t *testing.T, holder RowTx) {
	t.Helper()
	tx, ctx := v.tx(t), suite.Soon(t)
	short, back := "SET SESSION innodb_lock_wait_timeout = 1", "SET SESSION innodb_lock_wait_timeout = DEFAULT"
	if v.Postgres() {
		short, back = "SET LOCAL lock_timeout = '50ms'", "SET LOCAL lock_timeout TO DEFAULT"
	}
	require.NoError(t, tx.Exec(ctx, short))
	locked := suite.Begin(func() (any, error) {
		return nil, tx.LockRow(ctx, "seat", "id", 1, dblock.RowLock{Wait: dblock.WaitForContext()})
	})
	time.Sleep(v.locks.Bound * 3 / 2)
	require.NoError(t, holder.Commit(ctx))
	require.NoError(t, suite.Second(locked()))
	require.NoError(t, tx.Exec(ctx, back))
}

// StrengthsExclude: shares coexist, and an update excludes all others.
func (rowTests) StrengthsExclude(t *testing.T, v *rowEnv) {
	lock := func(id int64, s dblock.Strength, wait dblock.TxWait) error {
		return v.tx(t).LockRow(suite.Soon(t), "seat", "id", id, dblock.RowLock{Strength: s, Wait: wait})
	}
	for _, wait := range []dblock.TxWait{{}, dblock.NoWait(), dblock.SkipLocked(), dblock.WaitAtMost(v.locks.Bound)} {
		require.NoError(t, lock(1, dblock.StrengthShare, wait))
	}
	isRowHeld(t, lock(1, dblock.StrengthUpdate, dblock.NoWait()))
	require.NoError(t, lock(2, dblock.StrengthUpdate, dblock.TxWait{}))
	isRowHeld(t, lock(2, dblock.StrengthShare, dblock.NoWait()))
	for _, s := range []dblock.Strength{dblock.StrengthNoKeyUpdate, dblock.StrengthKeyShare} {
		if err := lock(3, s, dblock.TxWait{}); v.Postgres() {
			assert.NoError(t, err)
		} else {
			assert.ErrorIs(t, err, dblock.ErrUnsupported)
		}
	}
}

// NamesAreTakenAsTheyAre: quotes, blanks, keywords, and a schema before them.
func (rowTests) NamesAreTakenAsTheyAre(t *testing.T, v *rowEnv) {
	quote, query := "`", "SELECT DATABASE()"
	if v.Postgres() {
		quote, query = `"`, "SELECT current_schema()"
	}
	schema := v.Text(t, query)
	quoted := func(name string) string { return quote + strings.ReplaceAll(name, quote, quote+quote) + quote }
	for _, name := range []string{"select", "Two words", "a`b", `a"b`, "a'b", "it; --", "ä?$1"} {
		v.Exec(t, "CREATE TABLE "+quoted("t "+name)+" ("+quoted(name)+" VARCHAR(40) PRIMARY KEY)")
		v.Exec(t, "INSERT INTO "+quoted("t "+name)+" VALUES ('it''s ?')")
		for _, table := range []string{"t " + name, schema + ".t " + name} {
			o := dblock.RowLock{Strength: dblock.StrengthShare, Wait: dblock.NoWait()}
			require.NoError(t, v.tx(t).LockText(t.Context(), table, name, "it's ?", o), table)
		}
	}
}

// RefusesBadInput: the transaction has ended, so that a statement would fail in another way.
func (rowTests) RefusesBadInput(t *testing.T, v *rowEnv) {
	tx := v.tx(t)
	require.NoError(t, tx.Rollback(t.Context()))
	row := func(table, column string, o dblock.RowLock) error {
		return tx.LockRow(t.Context(), table, column, 1, o)
	}
	rows := func(keys []int64) error {
		return suite.Second(tx.LockRows(t.Context(), "seat", "id", keys, dblock.RowLock{}))
	}
	claim := func(query string, n int, o dblock.RowLock) error {
		return suite.Second(tx.Claim(t.Context(), o, n, query))
	}
	const free = "SELECT id FROM seat WHERE sold = 0"
	usual := dblock.RowLock{}
	for name, err := range map[string]error{
		"no table":         row("", "id", usual),
		"no column":        row("seat", "", usual),
		"no schema":        row(".seat", "id", usual),
		"no table in it":   row("shop.", "id", usual),
		"two dots":         row("a.b.c", "id", usual),
		"NUL in a table":   row("se\x00at", "id", usual),
		"NUL in a column":  row("seat", "i\x00d", usual),
		"no UTF-8":         row("seat\xff", "id", usual),
		"a long name":      row(strings.Repeat("x", 65), "id", usual),
		"NUL in a key":     tx.LockText(t.Context(), "seat", "id", "a\x00", usual),
		"a fraction":       row("seat", "id", dblock.RowLock{Wait: dblock.WaitAtMost(v.locks.Between)}),
		"a negative wait":  row("seat", "id", dblock.RowLock{Wait: dblock.WaitAtMost(-time.Second)}),
		"an endless wait":  row("seat", "id", dblock.RowLock{Wait: dblock.WaitAtMost(1 << 62 / time.Hour * time.Hour)}),
		"strength":         row("seat", "id", dblock.RowLock{Strength: 9}),
		"no keys":          rows(nil),
		"too many keys":    rows(make([]int64, dblock.MaxSetKeys+1)),
		"a claim of none":  claim(free, 0, usual),
		"too large":        claim(free, dblock.MaxSetKeys+1, usual),
		"a claim waits":    claim(free, 1, dblock.RowLock{Wait: dblock.WaitAtMost(time.Second)}),
		"a claim, NOWAIT":  claim(free, 1, noWait),
		"no query":         claim("", 1, usual),
		"no SELECT":        claim("UPDATE seat SET sold = 1", 1, usual),
		"WITH":             claim("WITH f AS (SELECT 1) SELECT id FROM seat", 1, usual),
		"a semicolon":      claim(free+";", 1, usual),
		"locks by itself":  claim(free+"\n for  update", 1, usual),
		"limits by itself": claim(free+" LIMIT 1", 1, usual),
		"UNION":            claim(free+" UNION "+free, 1, usual),
		"GROUP BY":         claim("SELECT sold FROM seat GROUP BY sold", 1, usual),
	} {
		require.ErrorIs(t, err, dblock.ErrInvalid, name)
		assert.NotEmpty(t, suite.As[*dblock.InvalidError](t, err).Reason, name)
	}
}

// SaysWhatToDo: the error names the table, column or transaction at fault.
func (rowTests) SaysWhatToDo(t *testing.T, v *rowEnv) {
	ctx := suite.Soon(t)
	says := func(err error, want string) {
		t.Helper()
		assert.ErrorContains(t, err, want)
		assert.NotErrorIs(t, err, dblock.ErrNotAcquired)
	}
	for _, wait := range []dblock.TxWait{{}, dblock.NoWait(), dblock.WaitAtMost(v.locks.Bound)} {
		o := dblock.RowLock{Wait: wait}
		says(v.tx(t).LockRow(ctx, "stool", "id", 1, o), "there is no such table")
		says(v.tx(t).LockRow(ctx, "seat", "number", 1, o), "there is no such column")
		ended := v.tx(t)
		require.NoError(t, ended.Commit(ctx))
		says(ended.LockRow(ctx, "seat", "id", 1, o), "the transaction has ended")
	}
	says(suite.Second(v.tx(t).Claim(ctx, dblock.RowLock{}, 1, "SELECT id FROM stool")), "there is no such table")
}

// EndsWithRollbackAndCommit: row locks end with their transaction.
func (rowTests) EndsWithRollbackAndCommit(t *testing.T, v *rowEnv) {
	for _, end := range []func(RowTx, context.Context) error{RowTx.Commit, RowTx.Rollback} {
		tx := v.tx(t)
		require.NoError(t, tx.LockRow(t.Context(), "seat", "id", 1, dblock.RowLock{}))
		isRowHeld(t, v.tx(t).LockRow(t.Context(), "seat", "id", 1, noWait))
		require.NoError(t, end(tx, t.Context()))
		next := v.tx(t)
		require.NoError(t, next.LockRow(t.Context(), "seat", "id", 1, noWait))
		require.NoError(t, next.Rollback(t.Context()))
	}
}

// TablesWithoutRowLocks: a table whose rows the server cannot lock is refused before a row is read.
func (rowTests) TablesWithoutRowLocks(t *testing.T, v *rowEnv) {
	ctx := suite.Soon(t)
	for table, why := range v.unlockable(t) {
		for _, o := range []dblock.RowLock{{}, noWait, {Wait: dblock.SkipLocked()}, {Scan: true}} {
			claim := func(query string) func(RowTx) error {
				return func(tx RowTx) error { return suite.Second(tx.Claim(ctx, dblock.RowLock{Scan: o.Scan}, 1, query)) }
			}
			for call, lock := range map[string]func(RowTx) error{
				"LockRow":  func(tx RowTx) error { return tx.LockRow(ctx, table, "id", 1, o) },
				"LockRows": func(tx RowTx) error { return suite.Second(tx.LockRows(ctx, table, "id", []int64{2, 1}, o)) },
				"Claim":    claim("SELECT id FROM " + table + " ORDER BY id"),
			} {
				tx := v.tx(t)
				err := lock(tx)
				assert.ErrorIs(t, err, dblock.ErrUnsupported, "%s of %s, %+v", call, table, o)
				assert.ErrorContains(t, err, why, "%s of %s, %+v", call, table, o)
				require.NoError(t, tx.Rollback(ctx))
			}
		}
	}
}

// unlockable makes tables without row locks, each with a word of the error.
func (v *rowEnv) unlockable(t *testing.T) map[string]string {
	t.Helper()
	if v.Postgres() {
		for _, statement := range []string{
			"CREATE FOREIGN DATA WRAPPER elsewhere", "CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere",
			"CREATE FOREIGN TABLE outside (id BIGINT NOT NULL) SERVER elsewhere",
			"CREATE TABLE parts (id BIGINT NOT NULL) PARTITION BY LIST (id)",
			"CREATE TABLE part_here PARTITION OF parts FOR VALUES IN (1)",
			"CREATE FOREIGN TABLE part_outside PARTITION OF parts FOR VALUES IN (2) SERVER elsewhere",
			`CREATE VIEW "Seen" AS SELECT id FROM outside`, `CREATE VIEW seen_too AS SELECT id FROM "Seen"`,
		} {
			v.Exec(t, statement)
		}
		return map[string]string{"outside": "outside", "parts": "part_outside", "seen_too": "seen_too"}
	}
	engines := map[string]string{"in_myisam": "MyISAM", "in_memory": "MEMORY"}
	if v.Kind == devdb.MariaDB {
		engines["in_aria"] = "Aria"
	}
	const comment = "COMMENT ') ENGINE=InnoDB'"
	for table, engine := range engines {
		v.Exec(t, "CREATE TABLE "+table+" (id BIGINT PRIMARY KEY, note VARCHAR(20) "+comment+") ENGINE="+engine+" "+comment)
		v.Exec(t, "INSERT INTO "+table+" (id) VALUES (1), (2)")
	}
	v.Exec(t, "CREATE VIEW on_view AS SELECT id FROM in_myisam")
	engines["on_view"] = "view"
	return engines
}
