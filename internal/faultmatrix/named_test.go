package faultmatrix

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/queue"
)

// clientBehindAnswers is a client whose answers can be replaced.
func clientBehindAnswers(t *testing.T, kind Kind) (*env, *client) {
	t.Helper()
	e, err := newEnv(t.Context(), servers{primary: testdb.Server(t, kind)}, Fault{Answers: answerFaults[0].Answers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	})
	c, err := openClient(t.Context(), e.config(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.close(context.Background()) })
	return e, c
}

// TestFaultsOfAGuardedTxHaveNames replaces each answer to GuardedTx by each of the matrix' errors.
// What the caller's own function did not return has a class, and after all but an unknown outcome
// nothing is written.
func TestFaultsOfAGuardedTxHaveNames(t *testing.T) {
	t.Parallel()
	const answersOfOne = 9 // to a GuardedTx with one statement
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			e, c := clientBehindAnswers(t, kind)
			lock, err := c.operator.Acquire(t.Context(), leaseKeys[0]) // whose heartbeats are seldom
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range answerFaults {
				for k := range answersOfOne {
					id := fmt.Sprint(f.Name, k)
					a := f.Answers[kind]
					if !f.has(kind) {
						continue
					}
					e.wire.Arm(k+1, a)
					err := c.guarded(t.Context(), lock, func(ctx context.Context, tx querier) error {
						if err := tx.exec(ctx, fmt.Sprintf("INSERT INTO matrix_write (id) VALUES ('%s')", id)); err != nil {
							return fmt.Errorf("%w: %w", errFunc, err)
						}
						return nil
					})
					_, struck := e.wire.Disarm()
					var there int
					if err := e.admin.QueryRowContext(t.Context(), fmt.Sprintf("SELECT count(*) FROM matrix_write WHERE id = '%s'", id)).Scan(&there); err != nil {
						t.Fatal(err)
					}
					if is := outcomeOf(err); is == unnamed || is == refused && there > 0 || is == done && there == 0 {
						t.Errorf("%v for %q: %v, %d rows: %v", a, struck, is, there, err)
					}
				}
			}
			_ = lock.Release(context.Background())
		})
	}
}

// TestFaultsOfCallsHaveNames: while all answers are an error, each call returns an error that has a
// class.
func TestFaultsOfCallsHaveNames(t *testing.T) {
	t.Parallel()
	const wait = 100 * time.Millisecond
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			e, c := clientBehindAnswers(t, kind)
			for name, call := range map[string]func(context.Context) error{
				"TryAcquire":         func(ctx context.Context) error { _, err := c.leases.TryAcquire(ctx, "k"); return err },
				"Acquire":            func(ctx context.Context) error { _, err := c.leases.Acquire(ctx, "k"); return err },
				"session TryAcquire": func(ctx context.Context) error { _, err := c.sessions.TryAcquire(ctx, "k"); return err },
				"ForceRelease":       func(ctx context.Context) error { return c.operator.ForceRelease(ctx, "k", 1) },
				"Held":               func(ctx context.Context) error { _, err := c.leases.Held(ctx); return err },
				"Holder":             func(ctx context.Context) error { _, err := c.leases.Holder(ctx, "k"); return err },
				"Enqueue": func(ctx context.Context) error {
					_, err := c.queue.Enqueue(ctx, queue.Task{Kind: jobKind, Args: "x"})
					return err
				},
				"Reserve": func(ctx context.Context) error {
					_, err := c.store.Reserve(ctx, inventory.Request{Key: "k", SKU: plentySKU, Qty: 1})
					return err
				},
				"Lookup": func(ctx context.Context) error { _, err := c.store.Lookup(ctx, "k"); return err },
			} {
				for _, f := range answerFaults {
					if !f.has(kind) {
						continue
					}
					a := f.Answers[kind]
					e.wire.Decide(func(int) *faultconn.Answer { return &a })
					ctx, cancel := context.WithTimeout(t.Context(), wait)
					err := call(ctx)
					cancel()
					if is := outcomeOf(err); is == unnamed || is == done {
						t.Errorf("%s while all answers are %v: %v", name, a, err)
					}
				}
			}
			e.wire.Disarm()
		})
	}
}
