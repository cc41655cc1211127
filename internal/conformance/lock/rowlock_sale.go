package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// oppositeOrdersNeverMeet: calls with the same rows in opposite orders never wait for each other.
func oppositeOrdersNeverMeet(t *testing.T, h *hall) {
	h.exec(t, "CREATE UNIQUE INDEX by_price ON seat (price, id)") // another order, which a plan could prefer
	forth := []int64{90, 7, 33, 1, 58, 2}
	back := slices.Clone(forth)
	slices.Reverse(back)
	ctx := suite.Soon(t)
	var callers sync.WaitGroup
	for _, keys := range [][]int64{forth, back} {
		callers.Go(func() {
			for range 60 {
				tx, err := h.begin(ctx)
				if err == nil {
					_, err = tx.LockRows(ctx, "seat", "id", keys, dblock.RowLock{})
				}
				if err == nil {
					err = tx.Commit(ctx)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
}

// controlSingleLocksMeet: one by one, in opposite orders, they do; and that is a conflict.
func controlSingleLocksMeet(t *testing.T, h *hall) {
	ctx := suite.Soon(t)
	a, b := h.tx(t), h.tx(t)
	require.NoError(t, a.LockRow(ctx, "seat", "id", 1, dblock.RowLock{}), "lock")
	require.NoError(t, b.LockRow(ctx, "seat", "id", 2, dblock.RowLock{}), "lock")
	first := make(chan error, 1)
	go func() {
		err := a.LockRow(ctx, "seat", "id", 2, dblock.RowLock{})
		if err != nil {
			_ = a.Rollback(ctx)
		}
		first <- err
	}()
	second := b.LockRow(ctx, "seat", "id", 1, dblock.RowLock{})
	if second != nil {
		_ = b.Rollback(ctx)
	}
	one := <-first
	if errors.Is(one, dblock.ErrConflict) == errors.Is(second, dblock.ErrConflict) {
		t.Errorf("%v, and %v: one of them should have given way", one, second)
	}
}

// claimsAreDifferent: two at once have no row together, in the order that is asked for; and a claim ends with its transaction.
func claimsAreDifferent(t *testing.T, h *hall) {
	ctx := suite.Soon(t)
	const free = "SELECT id FROM seat WHERE sold = 0 ORDER BY id -- for update; limit 1"
	a, b := h.tx(t), h.tx(t)
	for i, tx := range []RowTx{a, b} {
		got, err := tx.Claim(ctx, dblock.RowLock{}, 3, free)
		if want := []int64{int64(3*i + 1), int64(3*i + 2), int64(3*i + 3)}; err != nil || !slices.Equal(got, want) {
			t.Errorf("claim %d: %v, %v, want %v", i, got, err, want)
		}
	}
	require.NoError(t, a.Rollback(ctx), "rollback")
	c := h.tx(t)
	if got, err := c.Claim(ctx, dblock.RowLock{}, 4, free); err != nil || !slices.Equal(got, []int64{1, 2, 3, 7}) {
		t.Errorf("after a rollback: %v, %v", got, err)
	}
	if got, err := c.Claim(ctx, dblock.RowLock{}, 1, "SELECT id FROM seat WHERE sold = 5 ORDER BY id"); err != nil || len(got) != 0 {
		t.Errorf("where there is none: %v, %v", got, err)
	}
	require.NoError(t, b.Rollback(ctx), "rollback")
	require.NoError(t, c.Rollback(ctx), "rollback")
}

const (
	claimers  = 32
	saleSeats = 3_000
	saleLimit = 20 // seats to a claim, at most
)

// sellsEachSeatOnce: with all claiming at once, and some thinking better of it. Who finds none free is done: the last one at work
// has found all that there were.
func sellsEachSeatOnce(t *testing.T, h *hall) {
	h.sell(t, saleSeats, saleLimit, func(ctx context.Context, tx RowTx, n int) ([]int64, error) {
		return tx.Claim(ctx, dblock.RowLock{}, n, "SELECT id FROM seat WHERE sold = 0 ORDER BY id")
	})
	if tickets, sold := h.tickets(t); tickets != saleSeats || sold != saleSeats {
		t.Errorf("%d tickets for %d seats, of %d", tickets, sold, saleSeats)
	}
	if n := h.count(t, "SELECT count(*) FROM seat WHERE sold = 0"); n != 0 {
		t.Errorf("%d seats were left", n)
	}
}

// controlSellsSeatsTwice reads the seats without a lock; one by one, as several would deadlock.
func controlSellsSeatsTwice(t *testing.T, h *hall) {
	h.sell(t, 200, 1, func(ctx context.Context, tx RowTx, n int) ([]int64, error) {
		text, err := tx.Text(ctx, fmt.Sprintf("SELECT %s FROM (SELECT id FROM seat WHERE sold = 0 ORDER BY id LIMIT %d) free",
			h.joined("id"), n))
		var ids []int64
		for _, s := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
			id, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, err
	})
	if tickets, sold := h.tickets(t); tickets <= sold {
		t.Errorf("%d tickets for %d seats: the test with the lock shows nothing", tickets, sold)
	}
}

// joined is the text of a column's values with commas; empty where there are none.
func (h *hall) joined(column string) string {
	if h.e.Kind == "postgres" {
		return "coalesce(string_agg(" + column + "::text, ','), '')"
	}
	return "COALESCE(GROUP_CONCAT(" + column + "), '')"
}

func (h *hall) tickets(t *testing.T) (tickets, seats int64) {
	t.Helper()
	return h.count(t, "SELECT count(*) FROM ticket"), h.count(t, "SELECT count(DISTINCT seat) FROM ticket")
}

// sell has claimers buy until they find no seat.
func (h *hall) sell(t *testing.T, seats, most int, claim func(context.Context, RowTx, int) ([]int64, error)) {
	t.Helper()
	h.fill(t, seats)
	h.open(t, h.dsn, claimers, sql.LevelReadCommitted)
	ctx := suite.Soon(t)
	var buyers sync.WaitGroup
	for buyer := range claimers {
		buyers.Go(func() {
			for {
				got, err := h.buy(ctx, buyer, 1+rand.N(most), claim)
				if err != nil {
					t.Error(err)
				}
				if err != nil || got == 0 {
					return
				}
			}
		})
	}
	buyers.Wait()
}

// buy sells some seats to a buyer, who thinks better of it now and then.
func (h *hall) buy(ctx context.Context, buyer, n int, claim func(context.Context, RowTx, int) ([]int64, error)) (int, error) {
	tx, err := h.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	ids, err := claim(ctx, tx, n)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if rand.N(8) == 0 {
		return len(ids), nil
	}
	var list, rows []string
	for _, id := range ids {
		list = append(list, strconv.FormatInt(id, 10))
		rows = append(rows, fmt.Sprintf("(%d, %d)", id, buyer))
	}
	if err := tx.Exec(ctx, "UPDATE seat SET sold = 1 WHERE id IN ("+strings.Join(list, ", ")+")"); err != nil {
		return 0, err
	}
	if err := tx.Exec(ctx, "INSERT INTO ticket VALUES "+strings.Join(rows, ", ")); err != nil {
		return 0, err
	}
	return len(ids), tx.Commit(ctx)
}
