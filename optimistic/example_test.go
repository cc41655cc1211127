package optimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/optimistic"
)

// An account, and queries as sqlc generates them, of one row in memory.
type accountRow struct{ ID, Balance, Version int64 }

type queries struct{ rows map[int64]accountRow }

func (q queries) GetAccount(_ context.Context, id int64) (accountRow, error) {
	row, found := q.rows[id]
	if !found {
		return row, sql.ErrNoRows
	}
	return row, nil
}

// UpdateAccount is :one, UPDATE … WHERE id = $1 AND version = $2 RETURNING …
func (q queries) UpdateAccount(_ context.Context, a accountRow) (accountRow, error) {
	if q.rows[a.ID].Version != a.Version {
		return accountRow{}, sql.ErrNoRows
	}
	a.Version++
	q.rows[a.ID] = a
	return a, nil
}

// DeleteAccount is :execrows, DELETE … WHERE id = ? AND version = ?
func (q queries) DeleteAccount(_ context.Context, id, version int64) (int64, error) {
	if q.rows[id].Version != version {
		return 0, nil
	}
	delete(q.rows, id)
	return 1, nil
}

// A query that returns the row: sqlc's :one.
func ExampleOne() {
	ctx, q := context.Background(), queries{map[int64]accountRow{7: {7, 100, 3}}}
	for range 2 {
		saved, err := q.UpdateAccount(ctx, accountRow{ID: 7, Balance: 110, Version: 3})
		saved, err = optimistic.One(saved, err, optimistic.Row{Table: "account", Key: 7, Expected: 3})
		fmt.Println(saved, err)
	}
	// Output:
	// {7 110 4} <nil>
	// {0 0 0} optimistic: account 7, read at 3, has changed since; nothing was written: read it again and repeat the change
}

// A query that returns how many rows were hit: sqlc's :execrows.
func ExampleRows() {
	ctx, q := context.Background(), queries{map[int64]accountRow{7: {7, 100, 3}}}
	for _, version := range []int64{2, 3} {
		n, err := q.DeleteAccount(ctx, 7, version)
		err = optimistic.Rows(n, err, optimistic.Row{Table: "account", Key: 7, Expected: version})
		fmt.Println(errors.Is(err, optimistic.ErrStale), err == nil)
	}
	// Output:
	// true false
	// false true
}

// One more look distinguishes a row that has changed from one that is gone.
func ExampleDiagnose() {
	ctx, q := context.Background(), queries{map[int64]accountRow{7: {7, 100, 3}}}
	for _, id := range []int64{7, 8} {
		n, err := q.DeleteAccount(ctx, id, 2)
		err = optimistic.Rows(n, err, optimistic.Row{Table: "account", Key: id, Expected: 2})
		err = optimistic.Diagnose(err, func() (int64, error) {
			a, err := q.GetAccount(ctx, id)
			return a.Version, err
		})
		fmt.Println(err)
	}
	// Output:
	// optimistic: account 7, read at 2, has changed since: it is at 3; nothing was written: read it again and repeat the change
	// optimistic: account 8 does not exist (any more); nothing was written
}

// With any library: what is read anew is changed anew.
func ExampleUpdate() {
	ctx, q := context.Background(), queries{map[int64]accountRow{7: {7, 100, 3}}}
	others := func() { q.rows[7] = accountRow{7, 1000, 4} } // write, the first time
	saved, err := optimistic.Update(ctx,
		func(ctx context.Context) (accountRow, error) { return q.GetAccount(ctx, 7) },
		func(_ context.Context, a *accountRow) error {
			a.Balance += 10
			others()
			others = func() {}
			return nil
		},
		func(ctx context.Context, a accountRow) (accountRow, error) {
			saved, err := q.UpdateAccount(ctx, a)
			return optimistic.One(saved, err, optimistic.Row{Table: "account", Key: 7, Expected: a.Version})
		})
	fmt.Println(saved, err)
	// Output:
	// {7 1010 5} <nil>
}
