package optimistic

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/optimistic"
)

const optWorkers = 64

// increments has workers add one to balances, each so often, and returns how many calls have written as the callers know it.
// once reads a row and writes it; Do repeats it.
func increments(t *testing.T, times int, once func(worker, i int) error) int64 {
	t.Helper()
	var wg sync.WaitGroup
	var successes atomic.Int64
	for worker := range optWorkers {
		wg.Go(func() {
			for i := range times {
				err := optimistic.Do(t.Context(), func(context.Context, int) error { return once(worker, i) }, optimistic.Attempts(1_000))
				if err != nil {
					t.Error(err)
					return
				}
				successes.Add(1)
			}
		})
	}
	wg.Wait()
	return successes.Load()
}

// addOne is a read of a row and its write.
func (b *bank[DB]) addOne(t *testing.T, key int64, write func(version, balance int64) error) error {
	var version, balance int64
	query := "SELECT version, balance FROM account WHERE id = " + itoa(key)
	if err := b.sql.QueryRowContext(t.Context(), query).Scan(&version, &balance); err != nil {
		return err
	}
	return write(version, balance)
}

func incrementsOneRow[DB any](t *testing.T, b *bank[DB]) {
	table := b.ints(t, "account")
	b.sql.SetMaxOpenConns(16)
	b.sql.SetMaxIdleConns(16)
	n := increments(t, crowdEach(), func(int, int) error {
		return b.addOne(t, 1, func(version, balance int64) error {
			_, err := table.Update(t.Context(), b.db, 1, version, optimistic.Set{"balance": balance + 1})
			return err
		})
	})
	balance, version := b.number(t, "SELECT balance FROM account WHERE id = 1"), b.number(t, "SELECT version FROM account WHERE id = 1")
	if want := int64(optWorkers * crowdEach()); n != want || balance != want || version != want+1 {
		t.Fatalf("%d writes, a balance of %d, version %d; want %d", n, balance, version, want)
	}
}

func incrementsThousandRows[DB any](t *testing.T, b *bank[DB]) {
	b.exec(t, "DELETE FROM account")
	b.exec(t, b.by("INSERT INTO account (id, balance) SELECT n, 0 FROM generate_series(1, 1000) AS n",
		"INSERT INTO account (id, balance) WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000) SELECT n, 0 FROM s"))
	table := b.ints(t, "account")
	b.sql.SetMaxOpenConns(16)
	b.sql.SetMaxIdleConns(16)
	n := increments(t, crowdEach(), func(worker, i int) error {
		key := int64((worker*7919+i*104729)%1000 + 1)
		return b.addOne(t, key, func(version, balance int64) error {
			_, err := table.Update(t.Context(), b.db, key, version, optimistic.Set{"balance": balance + 1})
			return err
		})
	})
	balance, version := b.number(t, "SELECT sum(balance) FROM account"), b.number(t, "SELECT sum(version) FROM account")
	if want := int64(optWorkers * crowdEach()); n != want || balance != want || version != want+1000 {
		t.Fatalf("%d writes, balances of %d, versions of %d; want %d", n, balance, version, want)
	}
}

// incrementsMany: each call adds one to three rows, to all of them or to none.
func incrementsMany[DB any](t *testing.T, b *bank[DB]) {
	table := b.ints(t, "account")
	b.sql.SetMaxOpenConns(16)
	b.sql.SetMaxIdleConns(16)
	const times = 4
	increments(t, times, func(worker, i int) error {
		changes := make([]change, 3)
		for j := range changes {
			key := int64((worker+i+j*(1+worker%3))%10 + 1)
			err := b.addOne(t, key, func(version, balance int64) error {
				changes[j] = change{Key: key, Expected: version, Set: optimistic.Set{"balance": balance + 1}}
				return nil
			})
			if err != nil {
				return err
			}
		}
		_, err := table.UpdateMany(t.Context(), b.db, changes, optimistic.AllOrNothing)
		return err
	})
	balance, version := b.number(t, "SELECT sum(balance) FROM account"), b.number(t, "SELECT sum(version) FROM account")
	if want := int64(optWorkers * times * 3); balance != want || version != want+10 {
		t.Fatalf("balances of %d, versions of %d; want %d", balance, version, want)
	}
}

// incrementsOfColumns: without a version, by the balance itself.
func incrementsOfColumns[DB any](t *testing.T, b *bank[DB]) {
	table := b.columns(t, "account", "balance")
	b.sql.SetMaxOpenConns(16)
	b.sql.SetMaxIdleConns(16)
	const times = 10
	increments(t, times, func(int, int) error {
		return b.addOne(t, 1, func(_, balance int64) error {
			_, err := table.Update(t.Context(), b.db, 1, optimistic.Values{"balance": balance}, optimistic.Set{"balance": balance + 1})
			return err
		})
	})
	if balance := b.number(t, "SELECT balance FROM account WHERE id = 1"); balance != optWorkers*times {
		t.Fatalf("a balance of %d, want %d", balance, optWorkers*times)
	}
}

// controlIncrementsAreLost: with the version out of the condition, which Any does, two who read the same lose one increment.
func controlIncrementsAreLost[DB any](t *testing.T, b *bank[DB]) {
	table := b.ints(t, "account")
	var read [2]int64
	for i := range read {
		read[i] = b.number(t, "SELECT balance FROM account WHERE id = 1")
	}
	for _, balance := range read {
		sure(table.Any().Update(t.Context(), b.db, 1, optimistic.Set{"balance": balance + 1}))(t)
	}
	if balance := b.number(t, "SELECT balance FROM account WHERE id = 1"); balance != 1 {
		t.Fatalf("a balance of %d: nothing was lost", balance)
	}
}
