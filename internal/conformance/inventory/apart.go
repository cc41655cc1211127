package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// withLimit is held, and counts against its buyer's limit.
func withLimit(key, sku string) inventory.Request {
	r := held(key, sku)
	r.Limit = 2
	return r
}

// refuseChanges has a trigger of the owner's refuse every change of the reservations of the buyer "banned", with an SQLSTATE of its
// own choice.
func (s *env) refuseChanges(t *testing.T, state string) {
	t.Helper()
	if s.e.Kind == devdb.Postgres {
		s.exec(t, fmt.Sprintf(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'banned' USING ERRCODE = '%s'; END $$`, state))
		s.exec(t, `CREATE TRIGGER refuse BEFORE UPDATE ON dblock_reservation FOR EACH ROW
			WHEN (OLD.buyer = 'banned' AND NEW.state <> OLD.state) EXECUTE FUNCTION refuse()`)
		return
	}
	s.exec(t, fmt.Sprintf(`CREATE TRIGGER refuse BEFORE UPDATE ON dblock_reservation FOR EACH ROW
		IF OLD.buyer = 'banned' AND NEW.state <> OLD.state THEN SIGNAL SQLSTATE '%s' SET MESSAGE_TEXT = 'banned'; END IF`, state))
}

// aRefusedChangeFailsAlone has the owner's trigger refuse three changes among three hundred: P0001 and 45000 are what triggers say as a
// rule, 23505 is a key that is taken in a table of the owner's, and ZX001 is of no class that the server knows.
func aRefusedChangeFailsAlone(t *testing.T, s *env) {
	for _, state := range []string{"45000", "23505", "ZX001"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := s.e.env(t, s.o)
			s.stock(t, "sale", 1000)
			s.refuseChanges(t, state)
			reqs := ordersFor(300, "sale")
			for i := range reqs {
				reqs[i].Hold = time.Hour
				if i%100 == 42 {
					reqs[i].Buyer = "banned"
				}
			}
			for _, a := range crowd(t.Context(), s.Store, reqs) {
				if a.err != nil {
					t.Fatal(a.err)
				}
			}
			var all sync.WaitGroup
			for i, r := range reqs {
				all.Go(func() {
					change := s.Cancel
					if i%2 == 1 {
						change = s.Confirm
					}
					switch _, err := change(t.Context(), r.Key); {
					case r.Buyer == "banned" && (!errors.Is(err, inventory.ErrRejected) || !strings.Contains(err.Error(), "banned")):
						t.Errorf("%s: got %v, want the trigger's own words", r.Key, err)
					case r.Buyer != "banned" && err != nil:
						t.Errorf("%s failed for another's sake: %v", r.Key, err)
					}
				})
			}
			all.Wait()
			s.wantsBooks(t, "sale", 1000-153, 3, 150)
			s.sound(t)
		})
	}
}

// aRefusedRowDoesNotStopTheSweep has the owner's trigger refuse two of those that expired first: the others are swept, however few at
// once, the refused ones are reported, and swept once the trigger lets them.
func aRefusedRowDoesNotStopTheSweep(t *testing.T, s *env) {
	s.stock(t, "sale", 100)
	s.refuseChanges(t, "45000")
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
	swept, reported := 0, map[string]bool{}
	for i := 0; swept < 18 && i < 200; i++ {
		n, err := s.Sweep(t.Context(), 2)
		swept += n
		if err != nil {
			for _, key := range keys {
				reported[key] = reported[key] || errors.Is(err, inventory.ErrRejected) && strings.Contains(err.Error(), fmt.Sprintf("%q", key))
			}
		}
	}
	if swept != 18 || !reported[keys[0]] {
		t.Errorf("swept %d of 18; reported: %v", swept, reported)
	}
	s.wantsBooks(t, "sale", 98, 2, 0)
	drop := "DROP TRIGGER refuse"
	if s.e.Kind == devdb.Postgres {
		drop = "DROP TRIGGER refuse ON dblock_reservation"
	}
	s.exec(t, drop)
	for start := time.Now(); swept < 20 && time.Since(start) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		n, err := s.Sweep(t.Context(), 2)
		if swept += n; err != nil {
			t.Fatal(err)
		}
	}
	s.wantsBooks(t, "sale", 100, 0, 0)
	s.sound(t)
}

// lockedRows are what another transaction can have locked that a change of the reservation "slow" needs.
var lockedRows = map[string]string{
	"the reservation":   "SELECT 1 FROM dblock_reservation WHERE reservation_key = 'slow' FOR UPDATE",
	"one of its lines":  "SELECT 1 FROM dblock_reservation WHERE reservation_key = 'slow' AND line = 1 FOR UPDATE",
	"its stock":         "SELECT 1 FROM dblock_stock WHERE sku = 'locked' FOR UPDATE",
	"its buyer's limit": "SELECT 1 FROM dblock_quota WHERE sku = 'locked' FOR UPDATE",
	"its key":           "INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ('slow', 'other', '', 1, 2)",
}

// aLockedRowStallsNoOtherChange has another transaction lock what one change needs: those of others go on meanwhile, and that one is
// made when the transaction has ended.
func aLockedRowStallsNoOtherChange(t *testing.T, s *env) {
	for name, statement := range lockedRows {
		for what, change := range map[string]func(*inventory.Store, context.Context, string) (inventory.Reservation, error){
			"Cancel": (*inventory.Store).Cancel, "Confirm": (*inventory.Store).Confirm,
			"Sweep": func(store *inventory.Store, ctx context.Context, key string) (r inventory.Reservation, err error) {
				for err == nil && r.State != inventory.Expired {
					if _, err = store.Sweep(ctx, 1); err == nil {
						r, err = store.Lookup(ctx, key)
					}
				}
				return r, err
			},
		} {
			isNew := name == "its key"
			if isNew && what != "Cancel" || what == "Confirm" && name != "the reservation" {
				continue
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				s := s.e.env(t, s.o)
				s.stock(t, "locked", 10)
				s.stock(t, "other", 1000)
				if !isNew {
					cart := inventory.Cart{Key: "slow", Buyer: "ann", Hold: time.Hour, Lines: []inventory.Line{{SKU: "locked", Qty: 1, Limit: 2}, {SKU: "other", Qty: 1}}}
					if _, err := s.ReserveAll(t.Context(), cart); err != nil {
						t.Fatal(err)
					}
				}
				if what == "Sweep" {
					s.isDue(t, "slow")
				}
				const others = 90
				for i := range others {
					s.sells(t, withLimit(fmt.Sprintf("order-%d", i), "other"))
				}
				tx, err := s.db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback() }()
				if _, err := tx.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
				slow := make(chan error, 1)
				go func() {
					_, err := change(s.Store, t.Context(), "slow")
					slow <- err
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				var all sync.WaitGroup
				for n := range 3 { // not all at once: the slow one is to be among them
					all.Go(func() {
						for i := range others / 3 {
							s.changesOne(ctx, t, fmt.Sprintf("order-%d", i*3+n), i)
						}
					})
				}
				all.Wait()
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
				if err := <-slow; err != nil {
					t.Errorf("the slow one: %v", err)
				}
				s.sound(t)
			})
		}
	}
}

func (s *env) changesOne(ctx context.Context, t *testing.T, key string, i int) {
	var err error
	switch i % 4 {
	case 0:
		_, err = s.Confirm(ctx, key)
	case 1:
		_, err = s.Extend(ctx, key, 2*time.Hour)
	case 2:
		_, err = s.Cancel(ctx, key)
	case 3:
		var n int
		if err = s.expire(ctx, key, 100); err == nil {
			for start := time.Now(); err == nil && n == 0 && time.Since(start) < 30*time.Second; {
				if n, err = s.Sweep(ctx, 3); err == nil && n == 0 { // another one may have swept it
					var r inventory.Reservation
					if r, err = s.Lookup(ctx, key); r.State == inventory.Expired {
						n = int(s.count(t, fmt.Sprintf("SELECT count(*) FROM dblock_reservation WHERE reservation_key = '%s' AND state = 4", key)))
					}
				}
			}
		}
		if err == nil && n == 0 {
			err = errors.New("it was not swept")
		}
	}
	if err != nil {
		t.Errorf("%s: %v", key, err)
	}
}

// whatStaysLockedIsBusy has a transaction hold the row for longer than a caller may wait: nothing is written.
func whatStaysLockedIsBusy(t *testing.T, s *env) {
	s.stock(t, "locked", 10)
	s.sells(t, held("slow", "locked"))
	o := s.o
	o.Timeout = 200 * time.Millisecond
	store := s.open(t, o)
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), lockedRows["its stock"]); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Cancel(t.Context(), "slow"); !errors.Is(err, dblock.ErrBusy) || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("Cancel: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := store.Cancel(ctx, "slow"); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, dblock.ErrBusy) {
		t.Errorf("a caller who leaves: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s.wants(t, onKey(toCancel, "slow"), reply{State: inventory.Cancelled, SKU: "locked", Qty: 1})
	s.sound(t)
}
