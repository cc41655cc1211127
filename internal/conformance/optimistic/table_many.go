package optimistic

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic"
)

type change = optimistic.Change[int64]

// manyRows: verdicts for each row, or nothing at all.
func manyRows[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.fresh(t, "account", 10)
	table := b.ints(t, "account")
	sure(table.Update(ctx, b.db, 4, 1, optimistic.Set{"note": "x"}))(t)
	to := func(n int) optimistic.Set { return optimistic.Set{"balance": n, "note": fmt.Sprintf("n%d", n)} }
	changes := []change{
		{Key: 9, Expected: 1, Set: to(90)}, {Key: 4, Expected: 1, Set: to(40)}, {Key: int32(2), Expected: 1, Set: to(20)},
		{Key: 77, Expected: 1, Set: to(77)}, {Key: int64(1), Expected: 1, Set: to(10)},
	}
	outcomes, err := table.UpdateMany(ctx, b.db, changes, optimistic.AllOrNothing)
	var conflict *optimistic.ConflictError
	if outcomes != nil || !errors.Is(err, optimistic.ErrConflict) || !errors.Is(err, optimistic.ErrNotFound) || !errors.As(err, &conflict) ||
		conflict.Key != 4 || conflict.Actual != int64(2) {
		t.Fatalf("all or nothing: %v, %v", outcomes, err)
	}
	if n := b.number(t, "SELECT count(*) FROM account WHERE balance <> 0"); n != 0 {
		t.Fatalf("%d rows were written", n)
	}
	outcomes = sure(table.UpdateMany(ctx, b.db, changes, optimistic.EachRow))(t)
	want := []struct {
		verdict optimistic.Verdict
		version int64
	}{{optimistic.Updated, 2}, {optimistic.Conflicted, 2}, {optimistic.Updated, 2}, {optimistic.Missing, 0}, {optimistic.Updated, 2}}
	for i, o := range outcomes {
		if o.Verdict != want[i].verdict || o.Version != want[i].version || o.Key != changes[i].Key || (o.Err == nil) != (o.Verdict == optimistic.Updated) {
			t.Errorf("%d: %+v, want %+v", i, o, want[i])
		}
	}
	if n := b.number(t, "SELECT sum(balance) FROM account"); n != 120 {
		t.Fatalf("the balances are %d", n)
	}
	if n := b.number(t, "SELECT count(*) FROM account WHERE balance > 0 AND note = "+
		b.by("'n' || balance", "CONCAT('n', balance)")+" AND version = 2"); n != 3 {
		t.Fatalf("%d rows have their values", n)
	}
	all := []change{}
	for i := range 10 {
		v := int64(1)
		if sure(table.Version(ctx, b.db, i+1))(t) == 2 {
			v = 2
		}
		all = append(all, change{Key: 10 - i, Expected: sure(table.Version(ctx, b.db, 10-i))(t), Set: optimistic.Set{"balance": v}})
	}
	for i, o := range sure(table.UpdateMany(ctx, b.db, all, optimistic.AllOrNothing))(t) {
		if o.Verdict != optimistic.Updated || o.Version != all[i].Expected+1 {
			t.Errorf("%+v", o)
		}
	}
	tags := sure(b.e.UUID("account", "id", optimistic.UUID("tag")))(t)
	was := sure(tags.Version(ctx, b.db, 3))(t)
	got := sure(tags.UpdateMany(ctx, b.db, []optimistic.Change[[16]byte]{{Key: 3, Expected: was, Set: to(1)}, {Key: 5, Expected: [16]byte{1}, Set: to(2)}},
		optimistic.EachRow))(t)
	if now := sure(tags.Version(ctx, b.db, 3))(t); now != got[0].Version || now == was || got[1].Verdict != optimistic.Conflicted {
		t.Errorf("%v, told as %+v", now, got)
	}
}

func manyBadInput[DB any](t *testing.T, b *bank[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	set := optimistic.Set{"balance": 5}
	for name, changes := range map[string][]change{
		"none":            nil,
		"a key twice":     {{Key: 1, Expected: 1, Set: set}, {Key: int64(1), Expected: 1, Set: set}},
		"other columns":   {{Key: 1, Expected: 1, Set: set}, {Key: 2, Expected: 1, Set: optimistic.Set{"note": "x"}}},
		"more columns":    {{Key: 1, Expected: 1, Set: set}, {Key: 2, Expected: 1, Set: optimistic.Set{"balance": 5, "note": "x"}}},
		"too many":        make([]change, optimistic.MaxChanges+1),
		"version 0 later": {{Key: 1, Expected: 1, Set: set}, {Key: 2, Set: set}},
	} {
		_, err := table.UpdateMany(ctx, b.db, changes, optimistic.EachRow)
		badInput(t, name, err)
	}
	_, err := table.UpdateMany(ctx, b.db, []change{{Key: 1, Expected: 1, Set: set}}, 0)
	badInput(t, "no mode", err)

	// Keys that the server takes for the same one.
	b.exec(t, b.by(`CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`, "DO 1"))
	b.exec(t, "CREATE TABLE named (id VARCHAR(20) "+b.by("COLLATE loose", "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")+
		" PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)")
	b.exec(t, "INSERT INTO named VALUES ('a', 0, 1), ('b', 0, 1)")
	named := b.ints(t, "named")
	for _, mode := range []optimistic.Mode{optimistic.EachRow, optimistic.AllOrNothing} {
		_, err = named.UpdateMany(ctx, b.db, []change{
			{Key: "a", Expected: 1, Set: set}, {Key: "b", Expected: 1, Set: set}, {Key: "A", Expected: 1, Set: set},
		}, mode)
		badInput(t, "a and A", err)
	}
	if n := b.number(t, "SELECT sum(balance) FROM named") + b.number(t, "SELECT sum(balance) FROM account"); n != 0 {
		t.Errorf("the balances are %d", n)
	}
	sure(named.UpdateMany(ctx, b.db, []change{{Key: "B", Expected: 1, Set: set}, {Key: "A", Expected: 1, Set: set}}, optimistic.AllOrNothing))(t)
}

// manyTypes: each row gets its own value in columns of all types, NULL among them; by keys of texts and of UUIDs.
func manyTypes[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.exec(t, b.by("CREATE TYPE mood AS ENUM ('good', 'bad')", "DO 1"))
	b.exec(t, "CREATE TABLE every (id "+b.by("UUID", "BINARY(16)")+" PRIMARY KEY, n INT, price DECIMAL(20,6), half DOUBLE PRECISION, name VARCHAR(30), "+
		"doc "+b.by("JSONB", "JSON")+", day DATE, raw "+b.by("BYTEA, feeling mood", "VARBINARY(20), feeling ENUM('good', 'bad')")+
		", version BIGINT NOT NULL DEFAULT 1)")
	table := b.ints(t, "every")
	first, other := [16]byte{1, 2, 0xff}, [16]byte{2, 0, '\''}
	sets := []optimistic.Set{
		{"n": 5, "price": "12345678901234.123456", "half": 0.1, "name": "ä \\ '?", "doc": `{"a": [1, null]}`, "day": "2024-02-29",
			"raw": []byte{0, 0xff, '\''}, "feeling": "good"},
		{"n": nil, "price": nil, "half": nil, "name": nil, "doc": nil, "day": nil, "raw": nil, "feeling": nil},
	}
	for _, key := range [][16]byte{first, other} {
		sure(table.Upsert(ctx, b.db, key, optimistic.Absent[int64](), optimistic.Set{"n": 1}))(t)
	}
	count := func() int64 {
		return b.number(t, "SELECT count(*) FROM every WHERE n = 5 AND price = 12345678901234.123456 AND half = 0.1e0 AND name = 'ä "+
			b.by(`\`, `\\`)+" ''?' AND day = '2024-02-29' AND raw = "+b.by(`'\x00ff27'`, "X'00ff27'")+" AND feeling = 'good' AND doc"+
			b.by(" = '{\"a\": [1, null]}'", " IS NOT NULL")) + 10*b.number(t, "SELECT count(*) FROM every WHERE coalesce("+
			b.by("n::text, price::text, half::text, name, doc::text, day::text, raw::text, feeling::text", "n, price, half, name, doc, day, raw, feeling")+
			") IS NULL")
	}
	for round := range 2 {
		sure(table.UpdateMany(ctx, b.db, []change{
			{Key: other, Expected: int64(round + 1), Set: sets[round]}, {Key: first, Expected: int64(round + 1), Set: sets[1-round]},
		}, optimistic.AllOrNothing))(t)
		if n := count(); n != 11 {
			t.Errorf("round %d: %d", round, n)
		}
	}
	most := make([]change, optimistic.MaxChanges)
	var rows strings.Builder
	for i := range most {
		most[i] = change{Key: fmt.Sprintf("key %d", i), Expected: 1, Set: optimistic.Set{"balance": i, "note": "x"}}
		fmt.Fprintf(&rows, ", ('key %d', -1, '', 1)", i)
	}
	b.exec(t, "CREATE TABLE named (id VARCHAR(20) PRIMARY KEY, balance BIGINT NOT NULL, note VARCHAR(9), version BIGINT NOT NULL DEFAULT 1)")
	b.exec(t, "INSERT INTO named VALUES "+rows.String()[2:])
	sure(b.ints(t, "named").UpdateMany(ctx, b.db, most, optimistic.AllOrNothing))(t)
	if n := b.number(t, "SELECT count(*) FROM named WHERE id = "+b.by("'key ' || balance", "CONCAT('key ', balance)")); n != int64(len(most)) {
		t.Errorf("%d rows have their values", n)
	}
}

// manyNeverDeadlock: calls on the same rows, in opposite orders, wait for each other in line.
func manyNeverDeadlock[DB any](t *testing.T, b *bank[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	require.NoError(t, table.Check(ctx, b.db), "check")
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for range 40 {
				changes := make([]change, 10)
				for i := range changes {
					key := int64(i + 1)
					if worker%2 == 0 {
						key = int64(10 - i)
					}
					v, err := table.Version(ctx, b.db, key)
					if err != nil {
						t.Error(err)
						return
					}
					changes[i] = change{Key: key, Expected: v, Set: optimistic.Set{"note": itoa(int64(worker))}}
				}
				if _, err := table.UpdateMany(ctx, b.db, changes, optimistic.EachRow); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// manyInTransactions: it is the caller's to commit, and one that is refused leaves the transaction ready for use.
func manyInTransactions[DB any](t *testing.T, b *bank[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	set := optimistic.Set{"balance": 5}
	tx := b.tx(t, sql.LevelReadCommitted)
	sure(table.UpdateMany(ctx, tx.DB, []change{{Key: 1, Expected: 1, Set: set}, {Key: 2, Expected: 1, Set: set}}, optimistic.AllOrNothing))(t)
	_, err := table.UpdateMany(ctx, tx.DB, []change{{Key: 1, Expected: 1, Set: set}, {Key: 3, Expected: 1, Set: set}}, optimistic.AllOrNothing)
	if !errors.Is(err, optimistic.ErrConflict) || errors.Is(err, dblock.ErrConflict) {
		t.Fatalf("a stale one: %v", err)
	}
	sure(table.Update(ctx, tx.DB, 4, 1, set))(t)
	require.NoError(t, tx.Commit(), "commit")
	if n := b.number(t, "SELECT count(*) FROM account WHERE balance = 5"); n != 3 {
		t.Errorf("%d rows were written", n)
	}
}
