package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/queue"
)

// eachGrantIsNeeded runs commands that do all that an operator does with some tables. They succeed with
// the documented grants, and are refused without any one of them.
func eachGrantIsNeeded(t *testing.T, kind devdb.Kind, db *sql.DB, name string, ofThese func(table string) bool, commands func() error) {
	t.Helper()
	if err := commands(); err != nil {
		t.Fatalf("with all grants: %v", err)
	}
	engine := schema.MySQL
	if kind == devdb.Postgres {
		engine = schema.Postgres
	}
	for _, table := range schema.Tables() {
		if !ofThese(table) {
			continue
		}
		for _, right := range schema.OperatorRights(engine, table) {
			change := func(text string) {
				t.Helper()
				if _, err := db.ExecContext(t.Context(), fmt.Sprintf(text, right, table, name)); err != nil {
					t.Fatal(err)
				}
			}
			change("REVOKE %s ON %s FROM %s")
			if err := commands(); err == nil || !strings.Contains(err.Error(), "permission denied") && !mysqlfault.IsDenied(err) {
				t.Errorf("without %s on %s: %v, want a refusal", right, table, err)
			}
			change("GRANT %s ON %s TO %s")
		}
	}
}

// operatorsOfLocksNeedTheirGrants does what locks, unlock and permits do.
func operatorsOfLocksNeedTheirGrants(t *testing.T, v *vault) {
	as, name := grantedUser(t, v.e.Kind, v.dsn, v.db, schema.PostgresOperatorGrants, schema.MySQLOperatorGrants)
	operator, service := (&vault{v.e, as, v.db}).process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	n := 0
	eachGrantIsNeeded(t, v.e.Kind, v.db, name, func(table string) bool {
		return !strings.HasPrefix(table, "dblock_queue") && table != "dblock_session_key" && !ofStock(table)
	}, func() error {
		n++
		one, many, some := fmt.Sprint("one", n), fmt.Sprint("many", n), fmt.Sprint("some", n)
		locks := []*dblock.Lock{acquire(t, service, one), acquire(t, service, many, dblock.WithShared()), acquire(t, service, some, dblock.WithPermits(1, 2))}
		_, held := operator.Held(t.Context())
		_, holder := operator.Holder(t.Context(), one)
		errs := []error{held, holder, operator.SetPermits(t.Context(), some, 3), operator.SetPermits(t.Context(), "new "+some, 3)}
		for _, lock := range locks {
			errs = append(errs, operator.ForceRelease(t.Context(), lock.Key(), lock.Fences()[0].Token))
			_ = lock.Release(t.Context()) // lost, unless the operator was refused
		}
		return errors.Join(errs...)
	})
}

// operatorsOfJobsNeedTheirGrants does what the commands of queue do.
func operatorsOfJobsNeedTheirGrants(t *testing.T, d *desk) {
	as, name := grantedUser(t, d.e.Kind, d.dsn, d.db, schema.PostgresOperatorGrants, schema.MySQLOperatorGrants)
	operator, service := (&desk{d.e, as, d.db}).open(t, queue.Options{History: 1}), d.open(t, queue.Options{})
	began := make(chan int, 1)
	handle(t, service, "long", func(ctx context.Context, _ queue.Job[int]) error {
		began <- 1
		<-ctx.Done()
		return ctx.Err()
	})
	work(t, service, queue.WorkerOptions{Queue: "long"})
	n, long := 0, queue.ID{} // a running job, until it is cancelled
	eachGrantIsNeeded(t, d.e.Kind, d.db, name, func(table string) bool { return strings.HasPrefix(table, "dblock_queue") }, func() error {
		n++
		if long == (queue.ID{}) {
			long = enqueue(t, service, queue.Task{Kind: "long", Args: n, Queue: "long"})[0]
			wait(t, began, "the long job")
		}
		jobs := enqueue(t, service,
			queue.Task{Kind: "note", Args: 0, Unique: fmt.Sprint("ready", n)}, queue.Task{Kind: "note", Args: 1, Delay: time.Hour},
			queue.Task{Kind: "note", Args: 2, Group: fmt.Sprint(n)}, queue.Task{Kind: "note", Args: 3, Group: fmt.Sprint(n)},
			queue.Task{Kind: "note", Args: 4}, queue.Task{Kind: "note", Args: 5, Group: fmt.Sprint("dead", n), Unique: fmt.Sprint("dead", n)})
		for _, step := range queueCommands(t.Context(), operator, jobs, long) {
			if err := step(); err != nil {
				return err
			}
		}
		long = queue.ID{}
		return nil
	})
}

// queueCommands change jobs of every state: ready, scheduled, blocked, dead and running.
func queueCommands(ctx context.Context, operator *queue.Queue, jobs []queue.ID, running queue.ID) (steps []func() error) {
	discard := func(id queue.ID) func() error {
		return func() error { return operator.Discard(ctx, id, "not wanted") }
	}
	steps = []func() error{
		func() error { _, err := operator.Stats(ctx); return err },
		func() error { _, err := operator.Show(ctx, jobs[0]); return err },
		func() error { return operator.Pause(ctx, "note") },
		func() error { return operator.Resume(ctx, "note") },
	}
	for state := queue.Ready; state <= queue.Retrying; state++ {
		steps = append(steps, func() error { _, err := operator.List(ctx, queue.Filter{State: state}); return err })
	}
	for _, id := range jobs[4:] {
		steps = append(steps, discard(id), func() error { return operator.Retry(ctx, id) }, discard(id))
	}
	steps = append(steps, func() error { _, err := operator.RetryAll(ctx, ""); return err }, discard(jobs[4]),
		func() error { _, err := operator.Purge(ctx, "", 0); return err })
	for _, id := range append(jobs[:4:4], jobs[5], running) {
		steps = append(steps, func() error { _, err := operator.Cancel(ctx, id); return err })
	}
	return steps
}

// operatorsOfStockNeedTheirGrants audits, and looks up an order.
func operatorsOfStockNeedTheirGrants(t *testing.T, e Inventory) {
	s := e.shop(t, inventory.Options{})
	if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: "delivery", SKU: "lamp", Delta: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reserve(t.Context(), inventory.Request{Key: "order", SKU: "lamp", Buyer: "ann", Qty: 1}); err != nil {
		t.Fatal(err)
	}
	as, name := grantedUser(t, e.Kind, s.dsn, s.db, schema.PostgresOperatorGrants, schema.MySQLOperatorGrants)
	operator, closePool, err := e.Open(t.Context(), as, inventory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closePool)
	eachGrantIsNeeded(t, e.Kind, s.db, name, ofStock, func() error {
		_, audit := operator.Audit(t.Context())
		_, lookup := operator.Lookup(t.Context(), "order")
		return errors.Join(audit, lookup)
	})
}

func ofStock(table string) bool {
	return slices.Contains([]string{"dblock_stock", "dblock_reservation", "dblock_adjustment", "dblock_quota"}, table)
}
