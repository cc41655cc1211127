package lock

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// readersStayOneCrowd has writers wait for a reader, of whom one gives up and one dies: those who come to read after
// that have the reader's token, and pass the fence together with it. A writer that was let in fences them all off.
func readersStayOneCrowd(t *testing.T, v *env) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	first := suite.Acquire(t, a, "k", dblock.WithShared(), dblock.WithoutRenewal(time.Hour))
	if err := v.fence(t, v.e.Raise, first); err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(giveUp func()){
		func(giveUp func()) { giveUp() },
		func(giveUp func()) { v.ForgetMembers(t); giveUp() },
	} {
		ctx, giveUp := context.WithCancel(suite.Soon(t))
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = b.Acquire(ctx, "k")
		}()
		KeptOut(t, a, "k")
		end(giveUp)
		<-gone
		c := v.process(t, LeaseOptions{}) // nobody has told it that it is dead
		next := suite.Acquire(t, c, "k", dblock.WithShared())
		if token(t, next) != token(t, first) {
			t.Errorf("readers at once have the tokens %d and %d", token(t, first), token(t, next))
		}
		if err := v.fence(t, v.e.Raise, next); err != nil {
			t.Error(err)
		}
		suite.Release(t, next)
	}
	if err := v.fence(t, v.e.CheckRaised, first); err != nil {
		t.Errorf("a reader that is there: %v", err)
	}
	suite.Release(t, first)
	writes := suite.Acquire(t, v.process(t, LeaseOptions{}), "k")
	if err := v.fence(t, v.e.Raise, writes); err != nil || token(t, writes) <= token(t, first) {
		t.Errorf("token %d after %d, %v", token(t, writes), token(t, first), err)
	}
	if err := v.fence(t, v.e.CheckRaised, first); !errors.Is(err, dblock.ErrFenced) {
		t.Errorf("a reader beside a writer: %v", err)
	}
	suite.Release(t, writes)
}

// fence runs Raise or CheckRaised in a transaction of its own.
func (v *env) fence(
	t *testing.T, call func(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error, lock *dblock.Lock,
) error {
	t.Helper()
	f, _ := lock.Fence()
	tx, err := v.db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	if err := call(t.Context(), tx, f, "resource"); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
