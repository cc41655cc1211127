package optimistic

import (
	"database/sql"
	"errors"
	"reflect"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/optimistic"
)

// audited makes a fresh table of accounts, each write of which inserts rows into a table that numbers
// its rows by itself, before and after the write. The numbers begin at from.
func (b *bank[DB]) audited(t *testing.T, from string) {
	t.Helper()
	b.fresh(t, "account", 3)
	b.exec(t, "DROP TABLE IF EXISTS audit")
	if b.postgres() {
		b.exec(t, "CREATE TABLE audit (n BIGINT GENERATED ALWAYS AS IDENTITY (START "+from+") PRIMARY KEY, what TEXT)")
		b.exec(t, "CREATE OR REPLACE FUNCTION note_write() RETURNS trigger LANGUAGE plpgsql AS "+
			"$$ BEGIN INSERT INTO audit (what) VALUES (TG_OP), (TG_WHEN); RETURN coalesce(NEW, OLD); END $$")
	} else {
		b.exec(t, "CREATE TABLE audit (n BIGINT AUTO_INCREMENT PRIMARY KEY, what TEXT) AUTO_INCREMENT = "+from)
	}
	for _, when := range []string{"BEFORE", "AFTER"} {
		for _, what := range []string{"INSERT", "UPDATE", "DELETE"} {
			b.exec(t, "CREATE TRIGGER "+when+"_"+what+" "+when+" "+what+" ON account FOR EACH ROW "+
				b.by("EXECUTE FUNCTION note_write()", "INSERT INTO audit (what) VALUES ('"+what+"'), ('"+when+"')"))
		}
	}
}

// triggersLeaveVersions: a write tells the version that the row has, whatever a trigger inserts elsewhere.
func triggersLeaveVersions[DB any](t *testing.T, b *bank[DB]) {
	// The second number is that of microseconds since 1970, and so might pass for a time.
	for _, from := range []string{"1", "1700000000000000"} {
		b.audited(t, from)
		versionsAreTold(t, b, sure(b.e.Int("account", "id", optimistic.Int("version")))(t))
		b.audited(t, from)
		versionsAreTold(t, b, sure(b.e.Time("account", "id", optimistic.Timestamp("changed")))(t))
		b.audited(t, from)
		versionsAreTold(t, b, sure(b.e.UUID("account", "id", optimistic.UUID("tag")))(t))
	}
}

func versionsAreTold[V, DB any](t *testing.T, b *bank[DB], table *optimistic.Table[V, DB]) {
	t.Helper()
	ctx := t.Context()
	tx := b.tx(t, sql.LevelReadCommitted)
	defer func() { _ = tx.Rollback() }()
	key := 10
	for name, db := range map[string]DB{"pool": b.db, "transaction": tx.DB} {
		var v V
		told := func(what string, version V, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s, %s: %v", name, what, err)
			}
			if v = sure(table.Version(ctx, db, key))(t); !reflect.DeepEqual(v, version) {
				t.Errorf("%s, %s: the version is %v, told as %v", name, what, v, version)
			}
		}
		do := func(what string, run func() (V, error)) {
			t.Helper()
			version, err := run()
			told(what, version, err)
		}
		key++
		do("insert", func() (V, error) {
			return table.Upsert(ctx, db, key, optimistic.Absent[V](), optimistic.Set{"balance": 1})
		})
		for range 2 {
			do("update", func() (V, error) { return table.Update(ctx, db, key, v, optimistic.Set{"balance": 2}) })
			do("touch", func() (V, error) { return table.Touch(ctx, db, key, v) })
			do("blind update", func() (V, error) { return table.Any().Update(ctx, db, key, optimistic.Set{"balance": 3}) })
			do("blind touch", func() (V, error) { return table.Any().Touch(ctx, db, key) })
			do("blind upsert", func() (V, error) { return table.Any().Upsert(ctx, db, key, optimistic.Set{"balance": 4}) })
			do("many", func() (V, error) {
				changes := []optimistic.Change[V]{{Key: key, Expected: v, Set: optimistic.Set{"balance": 5}}}
				outcomes, err := table.UpdateMany(ctx, db, changes, optimistic.AllOrNothing)
				if err != nil {
					return v, err
				}
				return outcomes[0].Version, nil
			})
		}
		key++
		do("blind insert", func() (V, error) { return table.Any().Upsert(ctx, db, key, optimistic.Set{"balance": 6}) })
		require.NoError(t, table.Delete(ctx, db, key, v), "delete")
	}
}

// triggersLeaveColumns: the same for columns that are compared, with writes that change nothing.
func triggersLeaveColumns[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.audited(t, "1")
	table := b.columns(t, "account", "balance", "note")
	tx := b.tx(t, sql.LevelReadCommitted)
	stale := values{"balance": int64(7), "note": nil}
	for name, db := range map[string]DB{"pool": b.db, "transaction": tx.DB} {
		key := map[string]int{"pool": 1, "transaction": 2}[name]
		v := sure(table.Version(ctx, db, key))(t)
		for range 3 {
			v = sure(table.Update(ctx, db, key, v, optimistic.Set{"balance": int64(0), "version": 1}))(t)
			sure(table.Any().Update(ctx, db, key, optimistic.Set{"balance": 0, "note": nil}))(t)
		}
		_, err := table.Update(ctx, db, key, stale, optimistic.Set{"balance": int64(0)})
		conflicts(t, name+": a stale write of what is there", err, stale, values{"balance": int64(0), "note": nil})
		_, err = table.Update(ctx, db, 99, v, optimistic.Set{"balance": int64(0)})
		missing(t, name+": no row", err)
		_, err = table.Any().Update(ctx, db, 99, optimistic.Set{"balance": 0, "note": nil})
		missing(t, name+": no row, blindly", err)
		v = sure(table.Update(ctx, db, key, v, optimistic.Set{"balance": int64(7)}))(t)
		require.NoError(t, table.Delete(ctx, db, key, v), "delete")
	}
	require.NoError(t, tx.Rollback(), "rollback")
	if _, err := table.Update(ctx, b.db, 1, stale, optimistic.Set{"balance": int64(7)}); !errors.Is(err, optimistic.ErrNotFound) {
		t.Errorf("after the delete: %v", err)
	}
}

// blindWritesOfOneRow: each of many writes that take any version returns a version of its own, with triggers or without.
func blindWritesOfOneRow[DB any](t *testing.T, b *bank[DB]) {
	const workers, each = 8, 15
	ctx := t.Context()
	b.audited(t, "1")
	table := b.ints(t, "account")
	require.NoError(t, table.Check(ctx, b.db), "check")
	var mu sync.Mutex
	told := map[int64]bool{}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				v, err := table.Any().Update(ctx, b.db, 1, optimistic.Set{"balance": 1})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				told[v] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if v := sure(table.Version(ctx, b.db, 1))(t); v != 1+workers*each || len(told) != workers*each {
		t.Errorf("%d versions were told for %d writes, and the last is %d", len(told), workers*each, v)
	}
}
