package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// withLimit is held, and counts against its buyer's limit of 2.
func withLimit(key, sku string) inventory.Request {
	r := held(key, sku)
	r.Limit = 2
	return r
}

// banned are changes of the reservations of the buyer "banned".
const banned = "OLD.buyer = 'banned' AND NEW.state <> OLD.state"

// ARefusalOfAnyKindIsOneOrders has a trigger refuse one order of a crowd, then one sale, one
// cancellation and one expiry among those of a crowd, with each kind of error that a trigger has.
func (mergeTests) ARefusalOfAnyKindIsOneOrders(t *testing.T, s *env) {
	refusals, waits := s.Refusals(t)
	s.stock(t, "sale", 10_000)
	o := s.o
	o.Timeout = 10 * time.Second // that of a conflict that stays
	store := s.open(t, o)
	for name, statement := range suite.Both(refusals, waits) {
		want := inventory.ErrRejected
		switch {
		case name == suite.Conflict:
			want = dblock.ErrConflict
		case waits[name] != "":
			want = dblock.ErrBusy
		}
		isOnes := func(r inventory.Request, err error) {
			late := want == dblock.ErrConflict && errors.Is(err, dblock.ErrOutcomeUnknown) // its last try
			if r.Buyer != "banned" {
				assert.NoError(t, err, "%s: %s", name, r.Key)
			} else if name != "a primary key" && !late { // on MariaDB it is refused after a while, or busy
				assert.ErrorIs(t, err, want, "%s: %s", name, r.Key)
			} else {
				assert.Error(t, err, r.Key)
			}
		}
		reqs := ordersOf(name, 80, "sale")
		for i := range reqs {
			if reqs[i].Hold = time.Hour; i/4 == 5 {
				reqs[i].Buyer = "banned"
			}
		}
		drop := s.Trigger(t, "AFTER INSERT", "dblock_reservation", "NEW.buyer = 'banned'", statement)
		for _, a := range crowd(t.Context(), store, reqs) {
			isOnes(a.req, a.err)
		}
		drop()
		sellsTo(t, store, reqs[20:24])
		if waits[name] != "" && name != suite.Conflict { // one that takes its time is enough
			continue
		}
		drop = s.Trigger(t, "AFTER UPDATE", "dblock_reservation", banned, statement)
		var due []string
		suite.Crowd(len(reqs), func(i int) {
			switch key := reqs[i].Key; i % 4 {
			case 0:
				isOnes(reqs[i], suite.Second(store.Confirm(t.Context(), key)))
			case 1:
				isOnes(reqs[i], suite.Second(store.Cancel(t.Context(), key)))
			}
		})
		for i := 2; i < len(reqs); i += 4 {
			due = append(due, reqs[i].Key)
		}
		s.isDue(t, due...)
		swept := 0
		suite.Until(t, name+": all others are swept", func() bool {
			n, _ := store.Sweep(t.Context(), 100)
			swept += n
			return swept >= len(due)-1
		})
		drop()
		suite.Until(t, name+": the last one is swept", func() bool {
			n, _ := store.Sweep(t.Context(), 100)
			swept += n
			return swept >= len(due)
		})
	}
	s.sound(t)
}

// AUniqueIndexRefusesItsOrdersAlone has a unique index of the host's refuse three orders.
func (mergeTests) AUniqueIndexRefusesItsOrdersAlone(t *testing.T, s *env) {
	s.Exec(t, "CREATE UNIQUE INDEX owners ON dblock_reservation (buyer)")
	s.stock(t, "sale", 1000)
	reqs, refused := ordersFor(80, "sale"), 0
	for i := 20; i < 24; i++ {
		reqs[i].Buyer = "banned"
	}
	for _, a := range crowd(t.Context(), s.Store, reqs) {
		if a.req.Buyer == "banned" && a.err != nil {
			assert.ErrorIs(t, a.err, inventory.ErrRejected)
			refused++
		} else {
			assert.NoError(t, a.err, a.req.Key)
		}
	}
	assert.Equal(t, 3, refused)
	s.wantsBooks(t, "sale", 1000-77, 0, 77)
	s.sound(t)
}

// ALockOfATriggerIsOneOrders has a trigger wait for a locked row for the buyer "banned": others are
// sold, and their changes are made, meanwhile. Those of the buyer follow. On MySQL a trigger that
// waits keeps the stock locked for a second each time, so there the buyer orders another SKU.
func (mergeTests) ALockOfATriggerIsOneOrders(t *testing.T, s *env) {
	s.Exec(t, "CREATE TABLE audit (id INT PRIMARY KEY, note INT)")
	s.Exec(t, "INSERT INTO audit VALUES (1, 1)")
	sku := map[bool]string{true: "other", false: "sale"}[s.Kind == devdb.MySQL]
	s.stock(t, "sale", 1000)
	s.stock(t, "other", 1000)
	reqs := ordersFor(80, "sale")
	for i := range reqs {
		if reqs[i].Hold = time.Hour; i/4 == 5 {
			reqs[i].Buyer, reqs[i].SKU = "banned", sku
		}
	}
	calls := map[string]func(i int) error{
		"INSERT": func(i int) error { return suite.Second(s.Reserve(t.Context(), reqs[i])) },
		"UPDATE": func(i int) error {
			if i%2 == 0 {
				return suite.Second(s.Confirm(t.Context(), reqs[i].Key))
			}
			return suite.Second(s.Cancel(t.Context(), reqs[i].Key))
		},
	}
	for _, event := range []string{"INSERT", "UPDATE"} {
		s.Trigger(t, "AFTER "+event, "dblock_reservation", "NEW.buyer = 'banned'",
			"UPDATE audit SET note = note + 1 WHERE id = 1")
		release := s.Locked(t, "SELECT 1 FROM audit WHERE id = 1 FOR UPDATE")
		others, all := make(chan error, len(reqs)), make(chan error, len(reqs))
		for i := range reqs {
			go func() {
				err := calls[event](i)
				if all <- err; reqs[i].Buyer != "banned" {
					others <- err
				}
			}()
		}
		for range len(reqs) - 4 {
			assert.NoError(t, suite.Wait(t, others, event+" of another buyer"))
		}
		release()
		for range reqs {
			assert.NoError(t, suite.Wait(t, all, event))
		}
	}
	s.sound(t)
}

// ARefusedRowDoesNotStopTheSweep has a trigger refuse two of those that expired first: the others
// are swept, however few at once, an error names the first, and both are swept without the trigger.
func (mergeTests) ARefusedRowDoesNotStopTheSweep(t *testing.T, s *env) {
	s.stock(t, "sale", 100)
	drop := s.Trigger(t, "BEFORE UPDATE", "dblock_reservation", banned, suite.Raise(s.Kind, "45000", "banned"))
	var keys []string
	for i := range 20 {
		r := held(fmt.Sprintf("held-%d", i), "sale")
		if i < 2 {
			r.Buyer = "banned"
		}
		s.sells(t, r)
		keys = append(keys, r.Key)
	}
	s.isDue(t, keys...)
	swept, reported := 0, false
	suite.Until(t, "18 are swept, and the first of the others is named", func() bool {
		n, err := s.Sweep(t.Context(), 2)
		swept += n
		reported = reported || errors.Is(err, inventory.ErrRejected) && strings.Contains(err.Error(), `"held-0"`)
		return swept >= 18 && reported
	})
	s.wantsBooks(t, "sale", 98, 2, 0)
	drop()
	suite.Until(t, "all are swept", func() bool {
		swept += suite.Must(s.Sweep(t.Context(), 2))(t)
		return swept >= 20
	})
	s.wantsBooks(t, "sale", 100, 0, 0)
	s.sound(t)
}

// ManyLockedHoldsDelayNoSweep: many holds of a locked SKU expired before one of another SKU, which
// is swept as soon as each of those was tried once.
func (mergeTests) ManyLockedHoldsDelayNoSweep(t *testing.T, s *env) {
	const locked, limit = 25, 10
	s.stock(t, "locked", locked)
	s.stock(t, "other", 1)
	keys := named("held", locked)
	for _, key := range keys {
		s.sells(t, held(key, "locked"))
	}
	s.sells(t, held("last", "other"))
	s.isDue(t, append(keys, "last")...)
	letGo := s.lockSKUs(t, []string{"locked"})
	swept := 0
	for range (locked+1)/(limit-limit/4) + 1 {
		swept += suite.Must(s.Sweep(suite.Soon(t), limit))(t)
		time.Sleep(100 * time.Millisecond) // those that were tried first may be tried again
	}
	assert.Equal(t, 1, swept)
	s.wantsBooks(t, "other", 1, 0, 0)
	letGo()
	suite.Until(t, "all are swept", func() bool {
		swept += suite.Must(s.Sweep(suite.Soon(t), limit))(t)
		return swept == locked+1
	})
	s.sound(t)
}

// lockedRows are the rows that a change of the reservation "slow" needs, to be locked elsewhere.
var lockedRows = map[string]string{
	"the reservation":   "SELECT 1 FROM dblock_reservation WHERE reservation_key = 'slow' FOR UPDATE",
	"one of its lines":  "SELECT 1 FROM dblock_reservation WHERE reservation_key = 'slow' AND line = 1 FOR UPDATE",
	"its stock":         "SELECT 1 FROM dblock_stock WHERE sku = 'locked' FOR UPDATE",
	"its buyer's limit": "SELECT 1 FROM dblock_quota WHERE sku = 'locked' FOR UPDATE",
	"its key":           insertOrder + "('slow', 'other', '', 1, 2)",
}

// ALockedRowStallsNoOtherChange has another transaction lock what one change needs: others go on
// meanwhile, and that one is made when the transaction has ended.
func (mergeTests) ALockedRowStallsNoOtherChange(t *testing.T, s *env) {
	for rows, statement := range lockedRows {
		for _, what := range []string{toCancel, toConfirm, toSweep} {
			isNew := rows == "its key"
			if isNew && what != toCancel || what == toConfirm && rows != "the reservation" {
				continue
			}
			t.Run(rows+"/"+what, func(t *testing.T) {
				t.Parallel()
				s := s.another(t)
				s.stock(t, "locked", 10)
				s.stock(t, "other", 1000)
				if !isNew {
					lines := []inventory.Line{{SKU: "locked", Qty: 1, Limit: 2}, {SKU: "other", Qty: 1}}
					cart := inventory.Cart{Key: "slow", Buyer: "ann", Hold: time.Hour, Lines: lines}
					require.NoError(t, suite.Second(s.ReserveAll(t.Context(), cart)))
				}
				if what == toSweep {
					s.isDue(t, "slow")
				}
				const others = 90
				for i := range others {
					s.sells(t, withLimit(fmt.Sprintf("order-%d", i), "other"))
				}
				release := s.Locked(t, statement)
				slow := suite.Begin(func() (any, error) { return nil, s.changes(t.Context(), what, "slow") })
				suite.Crowd(3, func(n int) { // one after the other, so that the slow one is among them
					for i := range others / 3 {
						what, key := []string{toConfirm, toExtend, toCancel, toSweep}[i%4], fmt.Sprintf("order-%d", i*3+n)
						if what == toSweep {
							assert.NoError(t, s.expire(t.Context(), key, 100))
						}
						assert.NoError(t, s.changes(suite.Soon(t), what, key), what)
					}
				})
				release()
				assert.NoError(t, suite.Second(slow()))
				s.sound(t)
			})
		}
	}
}

// changes does an op to a reservation, which is due if it is to be swept.
func (s *env) changes(ctx context.Context, what, key string) (err error) {
	if what != toSweep {
		d := onKey(what, key)
		d.Request.Hold = 2 * time.Hour
		return suite.Second(d.once(ctx, s.Store))
	}
	// Lookup says that it is expired before the sweep, too.
	recorded := "SELECT state FROM dblock_reservation WHERE reservation_key = '" + key + "'"
	for state := inventory.ReservationHeld; err == nil && state != inventory.ReservationExpired; {
		if _, err = s.Sweep(ctx, 3); err == nil {
			err = s.DB.DB.QueryRowContext(ctx, recorded).Scan(&state)
		}
	}
	return err
}

// WhatStaysLockedIsBusy has the row locked for longer than a caller waits: nothing is written.
func (mergeTests) WhatStaysLockedIsBusy(t *testing.T, s *env) {
	s.stock(t, "locked", 10)
	s.sells(t, held("slow", "locked"))
	o := s.o
	o.Timeout = 200 * time.Millisecond
	store := s.open(t, o)
	release := s.Locked(t, lockedRows["its stock"])
	suite.Until(t, "it is busy, and nothing was written", func() bool { // a slow server does not say so at first
		err := suite.Second(store.Cancel(t.Context(), "slow"))
		return errors.Is(err, dblock.ErrBusy) && strings.Contains(err.Error(), "nothing was written")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := suite.Second(store.Cancel(ctx, "slow"))
	assert.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, dblock.ErrBusy) || suite.IsUnknown(err), err)
	release()
	s.wants(t, onKey(toCancel, "slow"), reply{State: inventory.ReservationCancelled, SKU: "locked", Qty: 1})
	s.sound(t)
}
