package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// plantedForMood is an exact match for a type of the host's, for which pg_catalog has a polymorphic
// operator alone.
const plantedForMood = `CREATE TYPE public.mood AS ENUM ('sad', 'ok');
CREATE FUNCTION public.planted_mood(mood, mood) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''planted''; END';
CREATE OPERATOR public.= (LEFTARG = mood, RIGHTARG = mood, FUNCTION = public.planted_mood);
CREATE DOMAIN public.code AS varchar(20)`

// keysOfTypes are values of key columns, by the type of the column.
var keysOfTypes = map[string]any{
	"bigint": int64(7), "integer": int32(7), "smallint": int16(7), "text": "seven", "varchar(20)": "seven", "char(5)": "seven", "code": "seven",
	"uuid": [16]byte{7}, "numeric": "7", "date": time.Date(2026, 1, 7, 0, 0, 0, 0, time.UTC), "mood": "ok",
}

// servicesRunNothingPlanted calls what has SQL of its own beside db/pgdb, as a service does.
func servicesRunNothingPlanted(t *testing.T, url string) {
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), plantedForMood); err != nil {
		t.Fatal(err)
	}
	for name, control := range map[string]string{
		"varchar": "SELECT 'a'::varchar = 'b'::varchar", "array": "SELECT '{a}'::text[] = '{b}'::text[]", "enum": "SELECT 'ok'::mood = 'sad'::mood",
	} {
		if _, err := pool.Exec(t.Context(), control); err == nil || !strings.Contains(err.Error(), "planted") {
			t.Fatalf("control %s: %v, want the planted operator to run", name, err)
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(keysOfTypes)) {
		t.Run("rows/"+typ, func(t *testing.T) {
			if text, is := keysOfTypes[typ].(string); is {
				lockRows(t, pool, typ, text)
			} else {
				lockRows(t, pool, typ, keysOfTypes[typ])
			}
		})
		for version, write := range tables {
			t.Run("tables/"+typ+"/"+version, func(t *testing.T) { write(t, pool, typ) })
		}
	}
	t.Run("advisory", func(t *testing.T) { advisoryLocks(t, pool, "app") })
	t.Run("leases", func(t *testing.T) { leasesOf(t, pool, "app") })
	t.Run("queue", func(t *testing.T) { queueOf(t, pool, "app") })
	t.Run("inventory", func(t *testing.T) { salesOf(t, pool, "app") })
}

func tableOfType(t *testing.T, pool *pgxpool.Pool, typ, version string) string {
	t.Helper()
	name := fmt.Sprintf("t%x", t.Name())
	name = name[max(0, len(name)-50):]
	if _, err := pool.Exec(t.Context(), fmt.Sprintf("CREATE TABLE public.t%s (k %s PRIMARY KEY, %s)", name, typ, version)); err != nil {
		t.Fatal(err)
	}
	return "public.t" + name
}

func lockRows[K any](t *testing.T, pool *pgxpool.Pool, typ string, key K) {
	table := tableOfType(t, pool, typ, "n int")
	if _, err := pool.Exec(t.Context(), fmt.Sprintf("INSERT INTO %s VALUES ($1, 1)", table), key); err != nil {
		t.Fatal(err)
	}
	for _, wait := range []dblock.TxWait{{}, dblock.NoWait(), dblock.SkipLocked(), dblock.WaitAtMost(time.Second)} {
		err := pglock.RunTx(t.Context(), pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
			return pglock.LockRow(t.Context(), tx, table, "k", key, dblock.RowLock{Wait: wait})
		})
		if err != nil {
			t.Errorf("wait %v: %v", wait, err)
		}
	}
	err := pglock.RunTx(t.Context(), pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
		if err := pglock.LockRow(t.Context(), tx, table, "k", key, dblock.RowLock{}); err != nil {
			return err
		}
		return pglock.RunTx(t.Context(), pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
			if err := pglock.LockRow(t.Context(), tx, table, "k", key, dblock.RowLock{Wait: dblock.SkipLocked()}); !errors.Is(err, dblock.ErrNotAcquired) {
				t.Errorf("a locked row: %v", err)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// tables write rows with each kind of version.
var tables = map[string]func(*testing.T, *pgxpool.Pool, string){
	"int": func(t *testing.T, pool *pgxpool.Pool, typ string) {
		writeRows(t, pool, typ, "n int, v smallint NOT NULL DEFAULT 1", optimistic.Int("v"))
	},
	"timestamp": func(t *testing.T, pool *pgxpool.Pool, typ string) {
		writeRows(t, pool, typ, "n int, v timestamp NOT NULL DEFAULT clock_timestamp()", optimistic.Timestamp("v"))
	},
	"timestamptz": func(t *testing.T, pool *pgxpool.Pool, typ string) {
		writeRows(t, pool, typ, "n int, v timestamptz NOT NULL DEFAULT clock_timestamp()", optimistic.Timestamp("v"))
	},
	"uuid": func(t *testing.T, pool *pgxpool.Pool, typ string) {
		writeRows(t, pool, typ, "n int, v uuid NOT NULL DEFAULT gen_random_uuid()", optimistic.UUID("v"))
	},
	"columns": func(t *testing.T, pool *pgxpool.Pool, typ string) {
		columns := "n int DEFAULT 1, a varchar(9) DEFAULT 'a', b mood DEFAULT 'ok', c numeric, d code, e char(3), f bytea"
		writeRows(t, pool, typ, columns, optimistic.Columns("n", "a", "b", "c", "d", "e", "f"))
	},
}

func writeRows[V any](t *testing.T, pool *pgxpool.Pool, typ, version string, token optimistic.Version[V]) {
	name, key := tableOfType(t, pool, typ, version), keysOfTypes[typ]
	if _, err := pool.Exec(t.Context(), fmt.Sprintf("INSERT INTO %s (k, n) VALUES ($1, 1)", name), key); err != nil {
		t.Fatal(err)
	}
	table, err := pgoptimistic.NewTable(name, "k", token)
	if err != nil {
		t.Fatal(err)
	}
	at, err := table.Version(t.Context(), pool, key)
	if err != nil {
		t.Fatal(err)
	}
	set := optimistic.Set{"n": 2}
	if _, columns := any(at).(optimistic.Values); columns {
		set = optimistic.Set{"n": 2, "a": "b", "b": "sad", "c": "1", "d": "d", "e": "e", "f": []byte("f")}
	}
	if at, err = table.Update(t.Context(), pool, key, at, set); err != nil {
		t.Fatalf("update: %v", err)
	}
	outcomes, err := table.UpdateMany(t.Context(), pool, []optimistic.Change[V]{{Key: key, Expected: at, Set: set}}, optimistic.UpdateAllOrNothing)
	if err != nil {
		t.Fatalf("update many: %v", err)
	}
	if err := table.Delete(t.Context(), pool, key, outcomes[0].Version); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := table.Upsert(t.Context(), pool, key, optimistic.Absent[V](), set); err != nil {
		t.Errorf("insert: %v", err)
	}
	if _, err := table.Any().Upsert(t.Context(), pool, key, set); err != nil {
		t.Errorf("upsert: %v", err)
	}
	if err := table.Any().Delete(t.Context(), pool, key); err != nil {
		t.Errorf("delete any: %v", err)
	}
}

func advisoryLocks(t *testing.T, pool *pgxpool.Pool, schema string) {
	for _, lock := range []func(context.Context, pgx.Tx) error{
		func(ctx context.Context, tx pgx.Tx) error {
			return pglock.LockTx(ctx, tx, dblock.WaitAtMost(time.Second), 1, 2)
		},
		func(ctx context.Context, tx pgx.Tx) error {
			return pglock.LockTx(ctx, tx, dblock.WaitForContext(), 1, 2)
		},
		func(ctx context.Context, tx pgx.Tx) error {
			return pglock.LockTxShared(ctx, tx, dblock.WaitAtMost(time.Second), 1, 2)
		},
		func(ctx context.Context, tx pgx.Tx) error { return pglock.LockTx(ctx, tx, dblock.NoWait(), 1, 2) },
	} {
		if err := pglock.RunTx(t.Context(), pool, pglock.TxOptions{}, func(tx pgx.Tx) error { return lock(t.Context(), tx) }); err != nil {
			t.Error(err)
		}
	}
	for _, serverQueue := range []bool{false, true} {
		s, err := pglock.NewSessionLocker(t.Context(), pool, pglock.SessionOptions{ServerQueue: serverQueue, Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		useAndClose(t, s)
	}
	if _, err := pglock.SessionLocks(t.Context(), pool, schema); err != nil {
		t.Error(err)
	}
}

func useAndClose(t *testing.T, l dblock.Locker) {
	t.Helper()
	for _, o := range [][]dblock.Option{nil, {dblock.WithShared()}} {
		lock, err := l.Acquire(t.Context(), "k", o...)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func leasesOf(t *testing.T, pool *pgxpool.Pool, schema string) {
	l, err := pglock.NewLeaseLocker(t.Context(), pool, pglock.LeaseOptions{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := l.AcquireAll(t.Context(), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	err = l.GuardedTx(t.Context(), lock, func(ctx context.Context, tx pgx.Tx) error {
		guards := pglock.Guards{Schema: schema}
		for _, f := range lock.Fences() {
			if err := errors.Join(guards.Guard(ctx, tx, f), guards.AdvanceFence(ctx, tx, f, "r"), guards.CheckFence(ctx, tx, f, "r")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
	useAndClose(t, l)
}

func queueOf(t *testing.T, pool *pgxpool.Pool, schema string) {
	q, err := pgqueue.New(t.Context(), pool, queue.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(t.Context(), queue.Task{Kind: "k", Group: "g", Unique: "u"}); err != nil {
		t.Error(err)
	}
	err = pglock.RunTx(t.Context(), pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
		_, err := pgqueue.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "k"}, queue.Task{Kind: "k", Group: "g"})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	done := make(chan struct{}, 3)
	err = pgqueue.HandleTx(q, "k", func(context.Context, pgx.Tx, queue.Job[any]) error {
		done <- struct{}{}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { _ = q.Work(ctx, queue.WorkerOptions{}) })
	for range 3 {
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("a job did not run")
		}
	}
	stop()
	working.Wait()
	if _, err := q.Stats(t.Context()); err != nil {
		t.Error(err)
	}
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func salesOf(t *testing.T, pool *pgxpool.Pool, schema string) {
	s, err := pginventory.New(t.Context(), pool, inventory.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: "delivery", SKU: "lamp", Delta: 5}); err != nil {
		t.Error(err)
	}
	if _, err := s.Reserve(t.Context(), inventory.Request{Key: "order", SKU: "lamp", Buyer: "ann", Qty: 1}); err != nil {
		t.Error(err)
	}
	err = pglock.RunTx(t.Context(), pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
		_, err := pginventory.ReserveTx(t.Context(), s, tx, inventory.Request{Key: "order in a transaction", SKU: "lamp", Buyer: "bob", Qty: 1})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
