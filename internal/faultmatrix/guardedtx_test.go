package faultmatrix

import (
	"context"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
)

// TestAGuardedTxNamesItsErrors replaces each answer to GuardedTx by each of the matrix' errors. What the caller's own
// function did not return has a class, and after all but an unknown outcome nothing is written.
func TestAGuardedTxNamesItsErrors(t *testing.T) {
	t.Parallel()
	const answersOfOne = 9 // to a GuardedTx with one statement
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			e, err := newEnv(t.Context(), testdb.Server(t, kind), Fault{Answers: answerFaults[0].Answers})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := e.close(); err != nil {
					t.Error(err)
				}
			}()
			c, err := openClient(t.Context(), e.config(0))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.close(context.Background()) }()
			lock, err := c.operator.Acquire(t.Context(), leaseKey(0)) // whose heartbeats are seldom
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
