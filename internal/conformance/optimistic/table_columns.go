package optimistic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/optimistic"
)

type values = optimistic.Values

// columnsCompare: only the columns named count, NULL like any other value, and texts byte by byte.
func columnsCompare[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.fresh(t, "account", 3)
	table := b.columns(t, "account", "balance", "note")
	was := sure(table.Version(ctx, b.db, 1))(t)
	if was["note"] != nil || was["balance"] != int64(0) {
		t.Fatalf("it is at %v", was)
	}
	now := sure(table.Update(ctx, b.db, 1, was, optimistic.Set{"note": "a"}))(t)
	if now["note"] != "a" || now["balance"] != int64(0) {
		t.Fatalf("it is at %v", now)
	}
	_, err := table.Update(ctx, b.db, 1, was, optimistic.Set{"balance": 9})
	conflicts(t, "NULL against a text", err, was, values{"note": "a", "balance": int64(0)})
	for _, note := range []any{"A", "a ", "", "ä", nil} {
		_, err := table.Update(ctx, b.db, 1, values{"note": note, "balance": 0}, optimistic.Set{"balance": 9})
		conflicts(t, "another text", err, values{"note": note, "balance": 0}, values{"note": "a", "balance": int64(0)})
		conflicts(t, "another text", table.Delete(ctx, b.db, 1, values{"note": note, "balance": 0}),
			values{"note": note, "balance": 0}, values{"note": "a", "balance": int64(0)})
	}
	b.exec(t, "UPDATE account SET version = 7 WHERE id = 1") // which is not compared
	now = sure(table.Update(ctx, b.db, 1, now, optimistic.Set{"note": nil, "balance": 1}))(t)
	now = sure(table.Update(ctx, b.db, 1, now, optimistic.Set{"version": 8}))(t)
	b.exec(t, "UPDATE account SET balance = 9007199254740993 WHERE id = 1") // as floats it would be the same as the one before
	_, err = table.Update(ctx, b.db, 1, values{"note": nil, "balance": int64(9007199254740992)}, optimistic.Set{"note": "b"})
	conflicts(t, "great numbers", err, values{"note": nil, "balance": int64(9007199254740992)},
		values{"note": nil, "balance": int64(9007199254740993)})
	_, err = table.Update(ctx, b.db, 99, now, optimistic.Set{"note": "b"})
	missing(t, "no row", err)
	blind := sure(table.Any().Update(ctx, b.db, 1, optimistic.Set{"note": "b", "balance": 3}))(t)
	_, err = table.Any().Update(ctx, b.db, 1, optimistic.Set{"note": "b"})
	badInput(t, "blindly, some of the columns", err)
	require.NoError(t, table.Delete(ctx, b.db, 1, blind), "delete")
}

// columnsEqualValues: a write of the values that are there is a success, and a stale one is none, however the server counts.
func columnsEqualValues[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.fresh(t, "account", 3)
	table := b.columns(t, "account", "balance", "note")
	v := sure(table.Version(ctx, b.db, 1))(t)
	for range 3 {
		v = sure(table.Update(ctx, b.db, 1, v, optimistic.Set{"balance": int64(0), "version": 1}))(t)
	}
	stale := values{"balance": int64(1), "note": nil}
	_, err := table.Update(ctx, b.db, 1, stale, optimistic.Set{"balance": int64(0)})
	conflicts(t, "stale", err, stale, values{"balance": int64(0), "note": nil})
	sure(table.Any().Update(ctx, b.db, 1, optimistic.Set{"balance": 0, "note": nil}))(t)
	_, err = table.Any().Update(ctx, b.db, 99, optimistic.Set{"balance": 0, "note": nil})
	missing(t, "no row", err)
	outcomes := sure(table.UpdateMany(ctx, b.db, []optimistic.Change[values]{
		{Key: 1, Expected: v, Set: optimistic.Set{"balance": 0}},
		{Key: 2, Expected: stale, Set: optimistic.Set{"balance": 0}},
	}, optimistic.EachRow))(t)
	if outcomes[0].Verdict != optimistic.Updated || outcomes[1].Verdict != optimistic.Conflicted {
		t.Fatalf("%+v", outcomes)
	}
}

// columnsOfAllTypes: what was read can be given back as it is expected, and what is told of a write, too.
func columnsOfAllTypes[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.exec(t, "DROP TABLE IF EXISTS every")
	if b.postgres() {
		b.exec(t, "DROP TYPE IF EXISTS mood")
		b.exec(t, "CREATE TYPE mood AS ENUM ('good', 'bad')")
	}
	b.exec(t, "CREATE TABLE every (id INT PRIMARY KEY, n SMALLINT, price DECIMAL(12,2), fixed CHAR(5), long_text TEXT, day DATE, yes BOOLEAN, "+
		b.by("at TIMESTAMP, zoned TIMESTAMPTZ, u UUID, raw BYTEA, feeling mood)",
			"at DATETIME(6), zoned BIGINT UNSIGNED, u BINARY(16), raw VARBINARY(20), feeling ENUM('good', 'bad'))"))
	b.exec(t, "INSERT INTO every VALUES (1, 5, 12.50, 'ab', 'Ünïcode \\ ''', '2024-02-29', "+
		b.by("true, '2024-02-29 01:02:03.000004', '2024-02-29 01:02:03+05', gen_random_uuid(), '\\x00ff', 'good')",
			"1, '2024-02-29 01:02:03.000004', 18446744073709551615, '0123456789abcdef', X'00ff', 'good')"))
	b.exec(t, "INSERT INTO every (id) VALUES (2)")
	names := []string{"n", "price", "fixed", "long_text", "day", "yes", "at", "zoned", "u", "raw", "feeling"}
	table := b.columns(t, "every", names...)
	for key := 1; key <= 2; key++ {
		v := sure(table.Version(ctx, b.db, key))(t)
		v = sure(table.Update(ctx, b.db, key, v, optimistic.Set{"n": 6}))(t)
		set := optimistic.Set{
			"price": "7.25", "fixed": "xy", "long_text": "'", "day": "2025-01-01", "yes": true, "raw": []byte{1, 0, 0xff}, "feeling": "bad",
		}
		v = sure(table.Update(ctx, b.db, key, v, set))(t)
		sure(table.UpdateMany(ctx, b.db, []optimistic.Change[values]{{Key: key, Expected: v, Set: optimistic.Set{"feeling": nil, "n": nil}}},
			optimistic.AllOrNothing))(t)
		v = sure(table.Version(ctx, b.db, key))(t)
		for _, name := range names {
			stale := values{}
			for other, value := range v {
				stale[other] = value
			}
			if stale[name] = nil; v[name] == nil {
				continue
			}
			_, err := table.Update(ctx, b.db, key, stale, optimistic.Set{"n": 7})
			conflicts(t, name, err, stale, v)
		}
		if at, ok := v["at"].(time.Time); key == 1 && (!ok || !at.Equal(time.Date(2024, 2, 29, 1, 2, 3, 4000, time.UTC))) {
			t.Fatalf("a time came as %v", v["at"])
		}
		require.NoError(t, table.Delete(ctx, b.db, key, v), "delete")
	}
}
