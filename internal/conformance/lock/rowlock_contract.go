package lock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// refusalsLeaveItUsable: what was done before a refusal stays, what comes after it works, and the bound of waits is what
// it was.
func refusalsLeaveItUsable(t *testing.T, h *hall) {
	ctx := suite.Soon(t)
	other, tx := h.tx(t), h.tx(t)
	require.NoError(t, other.LockRow(ctx, "seat", "id", 1, dblock.RowLock{}), "lock")
	require.NoError(t, tx.Exec(ctx, "UPDATE seat SET price = 100 WHERE id = 50"), "write")
	if h.e.Kind == devdb.Postgres {
		require.NoError(t, tx.Exec(ctx, "SET LOCAL lock_timeout = '77s'"), "set")
	}
	before := h.timeout(t, tx)
	usable := func(after string) {
		t.Helper()
		if now := h.timeout(t, tx); now != before {
			t.Errorf("after %s the bound is %s, and was %s", after, now, before)
		}
	}
	for _, wait := range []time.Duration{dblock.NoWait, dblock.SkipLocked, h.e.Bound} {
		began := time.Now()
		held := refused(t, wait.String(), tx.LockRow(ctx, "seat", "id", 1, dblock.RowLock{Wait: wait}))
		if wait > 0 && (held.Wait == nil || time.Since(began) < wait) || wait < 0 && held.Wait != nil {
			t.Errorf("refused after %v of %v, by %v", time.Since(began), wait, held.Wait)
		}
		usable("a refusal of one, " + wait.String())
		if wait != dblock.SkipLocked {
			_, err := tx.LockRows(ctx, "seat", "id", []int64{3, 1, 2}, dblock.RowLock{Wait: wait})
			refused(t, wait.String(), err)
			usable("a refusal of several, " + wait.String())
		}
	}
	rows, err := tx.LockRows(ctx, "seat", "id", []int64{999, 2, 1, 3}, dblock.RowLock{Wait: dblock.SkipLocked})
	require.NoError(t, err, "skip")
	if !slices.Equal(rows.Locked, []int64{2, 3}) || !slices.Equal(rows.Skipped, []int64{1}) {
		t.Errorf("got %+v", rows)
	}
	for _, wait := range []time.Duration{0, dblock.NoWait, h.e.Bound} {
		rows, err := tx.LockRows(ctx, "seat", "id", []int64{5, 999, 4}, dblock.RowLock{Wait: wait})
		if err != nil || !slices.Equal(rows.Locked, []int64{4, 5}) || rows.Skipped != nil {
			t.Errorf("%v: got %+v, %v", wait, rows, err)
		}
		if err := tx.LockRow(ctx, "seat", "id", 999, dblock.RowLock{Wait: wait}); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("%v: no row: %v", wait, err)
		}
		usable("a grant")
	}
	require.NoError(t, tx.Exec(ctx, "UPDATE seat SET price = 100 WHERE id = 51"), "write")
	require.NoError(t, tx.Commit(ctx), "commit")
	require.NoError(t, other.Rollback(ctx), "rollback")
	if n := h.count(t, "SELECT count(*) FROM seat WHERE price = 100"); n != 2 {
		t.Errorf("%d of 2 writes are there", n)
	}
	h.exec(t, "UPDATE seat SET price = 0 WHERE price = 100")
}

// rowsWaitForTheirEnd: for the row, or for the context.
func rowsWaitForTheirEnd(t *testing.T, h *hall) {
	other := h.tx(t)
	require.NoError(t, other.LockRow(t.Context(), "seat", "id", 1, dblock.RowLock{}), "lock")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	held := refused(t, "the context ends", h.tx(t).LockRow(ctx, "seat", "id", 1, dblock.RowLock{}))
	if !errors.Is(held, context.DeadlineExceeded) {
		t.Errorf("the wait ended by %v", held)
	}
	for _, wait := range []time.Duration{0, 40 * time.Second} {
		tx, got := h.tx(t), make(chan error, 1)
		go func() { got <- tx.LockRow(suite.Soon(t), "seat", "id", 1, dblock.RowLock{Wait: wait}) }()
		require.NoError(t, other.Commit(t.Context()), "commit")
		require.NoError(t, <-got, "the waiter")
		other = tx
	}
}

// strengthsExclude: shares go together, and nothing goes beside an update.
func strengthsExclude(t *testing.T, h *hall) {
	ctx := suite.Soon(t)
	share := dblock.RowLock{Strength: dblock.ForShare, Wait: dblock.NoWait}
	for _, o := range []dblock.RowLock{{}, {Wait: dblock.NoWait}, {Wait: dblock.SkipLocked}, {Wait: h.e.Bound}} {
		o.Strength = dblock.ForShare
		require.NoError(t, h.tx(t).LockRow(ctx, "seat", "id", 1, o), "share")
	}
	refused(t, "update beside shares", h.tx(t).LockRow(ctx, "seat", "id", 1, dblock.RowLock{Wait: dblock.NoWait}))
	require.NoError(t, h.tx(t).LockRow(ctx, "seat", "id", 2, dblock.RowLock{Strength: dblock.ForUpdate}), "update")
	refused(t, "share beside an update", h.tx(t).LockRow(ctx, "seat", "id", 2, share))
	for i, s := range []dblock.Strength{dblock.ForNoKeyUpdate, dblock.ForKeyShare} {
		err := h.tx(t).LockRow(ctx, "seat", "id", 3, dblock.RowLock{Strength: s})
		if h.e.Kind != devdb.Postgres && !errors.Is(err, dblock.ErrUnsupported) || h.e.Kind == devdb.Postgres && err != nil {
			t.Errorf("strength %d: %v", i, err)
		}
	}
}

// namesAreTakenAsTheyAre: quotes, blanks, words of SQL, and a schema before them.
func namesAreTakenAsTheyAre(t *testing.T, h *hall) {
	ctx := suite.Soon(t)
	quote, schema := "`", h.currentSchema(t)
	if h.e.Kind == devdb.Postgres {
		quote = `"`
	}
	quoted := func(name string) string { return quote + strings.ReplaceAll(name, quote, quote+quote) + quote }
	for _, name := range []string{"select", "Two words", "a`b", `a"b`, "a'b", "it; --", "ä?$1"} {
		h.exec(t, "CREATE TABLE "+quoted("t "+name)+" ("+quoted(name)+" VARCHAR(40) PRIMARY KEY)")
		h.exec(t, "INSERT INTO "+quoted("t "+name)+" VALUES ('it''s ?')")
		for _, table := range []string{"t " + name, schema + ".t " + name} {
			require.NoError(t, h.tx(t).LockText(ctx, table, name, "it's ?", dblock.RowLock{Strength: dblock.ForShare, Wait: dblock.NoWait}), table)
		}
	}
}

func (h *hall) currentSchema(t *testing.T) string {
	t.Helper()
	query := "SELECT DATABASE()"
	if h.e.Kind == devdb.Postgres {
		query = "SELECT current_schema()"
	}
	schema, err := h.tx(t).Text(t.Context(), query)
	require.NoError(t, err, "schema")
	return schema
}

// rowsRefuseBadInput: and the transaction is never asked.
func rowsRefuseBadInput(t *testing.T, h *hall) {
	tx := h.tx(t)
	require.NoError(t, tx.Rollback(t.Context())) // what is sent now fails in another way
	row := func(table, column string, o dblock.RowLock) error {
		return tx.LockRow(t.Context(), table, column, 1, o)
	}
	rows := func(keys []int64) error {
		_, err := tx.LockRows(t.Context(), "seat", "id", keys, dblock.RowLock{})
		return err
	}
	claim := func(query string, n int, o dblock.RowLock) error {
		_, err := tx.Claim(t.Context(), o, n, query)
		return err
	}
	const free = "SELECT id FROM seat WHERE sold = 0"
	for name, err := range map[string]error{
		"no table":       row("", "id", dblock.RowLock{}),
		"no column":      row("seat", "", dblock.RowLock{}),
		"no schema":      row(".seat", "id", dblock.RowLock{}),
		"no table in it": row("shop.", "id", dblock.RowLock{}),
		"two dots":       row("a.b.c", "id", dblock.RowLock{}),
		"NUL":            row("se\x00at", "id", dblock.RowLock{}),
		"NUL in column":  row("seat", "i\x00d", dblock.RowLock{}),
		"no UTF-8":       row("seat\xff", "id", dblock.RowLock{}),
		"a long name":    row(strings.Repeat("x", 64), "id", dblock.RowLock{}),
		"NUL in a key":   tx.LockText(t.Context(), "seat", "id", "a\x00", dblock.RowLock{}),
		"a fraction":     row("seat", "id", dblock.RowLock{Wait: h.e.Between}),
		"negative":       row("seat", "id", dblock.RowLock{Wait: -time.Second}),
		"for ever":       row("seat", "id", dblock.RowLock{Wait: 1 << 62 / time.Hour * time.Hour}),
		"strength":       row("seat", "id", dblock.RowLock{Strength: 9}),
		"no keys":        rows(nil),
		"too many keys":  rows(make([]int64, dblock.MaxSetKeys+1)),
		"none":           claim(free, 0, dblock.RowLock{}),
		"too many":       claim(free, dblock.MaxSetKeys+1, dblock.RowLock{}),
		"a claim waits":  claim(free, 1, dblock.RowLock{Wait: time.Second}),
		"NOWAIT":         claim(free, 1, dblock.RowLock{Wait: dblock.NoWait}),
		"no query":       claim("", 1, dblock.RowLock{}),
		"no SELECT":      claim("UPDATE seat SET sold = 1", 1, dblock.RowLock{}),
		"WITH":           claim("WITH f AS (SELECT 1) SELECT id FROM seat", 1, dblock.RowLock{}),
		"semicolon":      claim(free+";", 1, dblock.RowLock{}),
		"locks":          claim(free+"\n for  update", 1, dblock.RowLock{}),
		"limits":         claim(free+" LIMIT 1", 1, dblock.RowLock{}),
		"UNION":          claim(free+" UNION "+free, 1, dblock.RowLock{}),
		"groups":         claim("SELECT sold FROM seat GROUP BY sold", 1, dblock.RowLock{}),
	} {
		var invalid *dblock.InvalidError
		if !errors.As(err, &invalid) || invalid.Reason == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// rowErrorsSayWhatToDo: where a table, a column or the transaction is to blame.
func rowErrorsSayWhatToDo(t *testing.T, h *hall) {
	ctx := suite.Soon(t)
	says := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, dblock.ErrNotAcquired) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	for _, wait := range []time.Duration{0, dblock.NoWait, h.e.Bound} {
		o := dblock.RowLock{Wait: wait}
		says(h.tx(t).LockRow(ctx, "stool", "id", 1, o), "there is no such table")
		says(h.tx(t).LockRow(ctx, "seat", "number", 1, o), "there is no such column")
		ended := h.tx(t)
		require.NoError(t, ended.Commit(ctx), "commit")
		says(ended.LockRow(ctx, "seat", "id", 1, o), "the transaction has ended")
	}
	_, err := h.tx(t).Claim(ctx, dblock.RowLock{}, 1, "SELECT id FROM stool")
	says(err, "there is no such table")
}

// rowLocksEnd with their transaction.
func rowLocksEnd(t *testing.T, h *hall) {
	ctx := suite.Soon(t)
	for name, end := range map[string]func(RowTx) error{
		"commit":   func(tx RowTx) error { return tx.Commit(ctx) },
		"rollback": func(tx RowTx) error { return tx.Rollback(ctx) },
	} {
		tx := h.tx(t)
		require.NoError(t, tx.LockRow(ctx, "seat", "id", 1, dblock.RowLock{}), name)
		refused(t, name, h.tx(t).LockRow(ctx, "seat", "id", 1, dblock.RowLock{Wait: dblock.NoWait}))
		require.NoError(t, end(tx), name)
		again := h.tx(t)
		require.NoError(t, again.LockRow(ctx, "seat", "id", 1, dblock.RowLock{Wait: dblock.NoWait}), "after "+name)
		require.NoError(t, again.Rollback(ctx), name)
	}
}
