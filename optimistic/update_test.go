package optimistic_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic"
)

// account is a row.
type account struct {
	id, balance, version int64
}

// table is a row of a database that answers at once.
type table struct {
	row    account
	before func(*table) // what another writer does between a read and a write
}

func (t *table) load(context.Context) (account, error) { return t.row, nil }

func (t *table) save(_ context.Context, a account) (account, error) {
	if t.before != nil {
		t.before(t)
	}
	n := int64(0)
	if a.version == t.row.version {
		a.version++
		t.row, n = a, 1
	}
	return a, optimistic.Rows(n, nil, optimistic.Row{Table: "account", Key: a.id, Expected: a.version})
}

func add10(_ context.Context, a *account) error {
	a.balance += 10
	return nil
}

func TestUpdateChangesWhatIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		others := 3
		db := &table{row: account{17, 100, 1}, before: func(db *table) {
			if others > 0 {
				others--
				db.row.balance, db.row.version = db.row.balance+1, db.row.version+1
			}
		}}
		got, err := optimistic.Update(t.Context(), db.load, add10, db.save)
		if want := (account{17, 113, 5}); err != nil || got != want || db.row != want {
			t.Errorf("got %v, %v, and the row is %v: want %v", got, err, db.row, want)
		}
	})
}

// TestUpdateGivesUp: the row is the zero value then, whatever save returned.
func TestUpdateGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &table{row: account{17, 100, 1}, before: func(db *table) { db.row.version++ }}
		got, err := optimistic.Update(t.Context(), db.load, add10, db.save, optimistic.Attempts(4))
		var last *optimistic.StaleError
		if !errors.As(err, &last) || last.Attempts != 4 || got != (account{}) || db.row.balance != 100 {
			t.Errorf("got %v, %v, and the row is %v", got, err, db.row)
		}
	})
}

// TestUpdateEndsWithMutate: its error comes as it is, even one that would be repeated.
func TestUpdateEndsWithMutate(t *testing.T) {
	t.Parallel()
	for _, refused := range []error{errMine, conflict(), dblock.ErrConflict} {
		db, calls := &table{row: account{17, 100, 1}}, 0
		got, err := optimistic.Update(t.Context(), db.load, func(context.Context, *account) error { calls++; return refused }, db.save,
			optimistic.RetryIf(func(error) bool { return true }))
		if err != refused || got != (account{}) || calls != 1 || db.row.version != 1 {
			t.Errorf("%v: %d calls, %v, %v", refused, calls, got, err)
		}
	}
}

func TestUpdateOfAFailedLoad(t *testing.T) {
	t.Parallel()
	db := &table{}
	_, err := optimistic.Update(t.Context(), func(context.Context) (account, error) { return account{}, errMine }, add10, db.save)
	if err != errMine || db.row != (account{}) {
		t.Errorf("got %v", err)
	}
}

func TestUpdateRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	db := &table{}
	_, noLoad := optimistic.Update(t.Context(), nil, add10, db.save)
	_, noMutate := optimistic.Update(t.Context(), db.load, nil, db.save)
	_, noSave := optimistic.Update(t.Context(), db.load, add10, nil)
	_, bad := optimistic.Update(t.Context(), db.load, add10, db.save, optimistic.Attempts(0))
	for field, err := range map[string]error{"load": noLoad, "mutate": noMutate, "save": noSave, "Attempts": bad} {
		var invalid *dblock.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestUpdateCostsLittle: at most four allocations more than the two statements by hand.
func TestUpdateCostsLittle(t *testing.T) {
	db, ctx := &table{row: account{17, 100, 1 << 40}}, t.Context()
	byHand := testing.AllocsPerRun(1000, func() {
		a, _ := db.load(ctx)
		a.balance += 10
		if a.version == db.row.version {
			a.version++
			db.row = a
		}
	})
	ours := testing.AllocsPerRun(1000, func() {
		if _, err := optimistic.Update(ctx, db.load, add10, db.save); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%v allocations, by hand %v", ours, byHand)
	if ours > byHand+4 {
		t.Errorf("%v allocations, by hand %v", ours, byHand)
	}
}
