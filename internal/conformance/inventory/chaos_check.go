package inventory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

// againTimeout bounds how long a healthy server may take to answer everything.
const againTimeout = 3 * time.Minute

// sendAllAgain sends every order through every Store until it is answered for good; where they are
// refused as busy over and over, some of them.
func (c *chaos) sendAllAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), againTimeout)
	defer cancel()
	var senders sync.WaitGroup
	for _, store := range c.stores {
		next := make(chan inventory.Request)
		for range 64 {
			senders.Go(func() {
				for r := range next {
					for !c.send(t, store, r) {
						time.Sleep(rand.N(10 * time.Millisecond))
						if ctx.Err() != nil {
							t.Errorf("%s was not answered in %v on a healthy server", r.Key, againTimeout)
							return
						}
					}
				}
			})
		}
		senders.Go(func() {
			defer close(next)
			for i, r := range c.orders {
				if i%8 != 0 && !store.Strategy().SellsAll() {
					continue
				}
				select {
				case next <- r:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	senders.Wait()
}

// check holds what was said of each order against the others' answers and the tables.
func (c *chaos) check(t *testing.T) (faults []string) {
	recorded := c.recorded(t)
	sold := map[string]int64{}
	for _, r := range c.orders {
		v, state := c.told[r.Key], recorded[r.Key]
		switch {
		case v.sold > 0 && v.soldOut > 0:
			faults = append(faults, fmt.Sprintf("%s: told %d times sold and %d times sold out", r.Key, v.sold, v.soldOut))
		case v.fresh > 1:
			faults = append(faults, fmt.Sprintf("%s: %d callers were told that theirs was the first", r.Key, v.fresh))
		case v.sold > 0 && state != inventory.Sold:
			faults = append(faults, fmt.Sprintf("%s: told that it is sold, recorded is %v", r.Key, state))
		case v.soldOut > 0 && state == inventory.Sold:
			faults = append(faults, fmt.Sprintf("%s: told that it is sold out, and it is sold", r.Key))
		case v.sold+v.soldOut == 0:
			faults = append(faults, fmt.Sprintf("%s: never answered", r.Key))
		}
		if v.sold > 0 {
			sold[r.SKU] += r.Qty
		}
	}
	books, err := c.s.Audit(t.Context(), c.plenty(), c.scarce())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range books {
		if b.Drift() != 0 || b.Available < 0 || b.Sold != sold[b.SKU] {
			faults = append(faults, fmt.Sprintf("callers were told of %d: %+v", sold[b.SKU], b))
		}
	}
	if len(books) != 2 {
		faults = append(faults, fmt.Sprintf("the books hold %+v", books))
	}
	return faults
}

// recorded reads the table itself.
func (c *chaos) recorded(t *testing.T) map[string]inventory.State {
	rows, err := c.s.db.QueryContext(t.Context(), fmt.Sprintf(
		"SELECT reservation_key, state FROM dblock_reservation WHERE sku IN ('%s', '%s')", c.plenty(), c.scarce()))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	states := map[string]inventory.State{}
	for rows.Next() {
		var key string
		var state int16
		if err := rows.Scan(&key, &state); err != nil {
			t.Fatal(err)
		}
		states[key] = inventory.State(state)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return states
}

// checkNotices is the control: the books are forged in every way that a fault could, and the checker
// has to say so, or its acquittal means nothing.
func (c *chaos) checkNotices(t *testing.T) {
	var victim, refused inventory.Request
	for _, r := range c.orders {
		if v := c.told[r.Key]; v.sold > 0 && r.SKU == c.plenty() {
			victim = r
		} else if v.soldOut > 0 {
			refused = r
		}
	}
	if victim.Key == "" {
		t.Errorf("%s: nothing was sold: this round shows nothing", c.name)
		return
	}
	where := fmt.Sprintf("WHERE reservation_key = '%s'", victim.Key)
	for name, forgery := range map[string][2]string{
		"a lost sale": {
			"UPDATE dblock_reservation SET state = 3 " + where,
			"UPDATE dblock_reservation SET state = 2 " + where,
		},
		"units out of thin air": {
			fmt.Sprintf("UPDATE dblock_stock SET available = available + 1 WHERE sku = '%s' AND bucket = 0", c.plenty()),
			fmt.Sprintf("UPDATE dblock_stock SET available = available - 1 WHERE sku = '%s' AND bucket = 0", c.plenty()),
		},
		"a sale that nobody was told of": {
			fmt.Sprintf("INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ('%s', '%s', '', 1, 2)",
				"forged", c.plenty()),
			"DELETE FROM dblock_reservation WHERE reservation_key = 'forged'",
		},
	} {
		c.s.exec(t, forgery[0])
		if len(c.check(t)) == 0 {
			t.Errorf("%s: %s went unnoticed: this test could not fail", c.name, name)
		}
		c.s.exec(t, forgery[1])
	}
	c.told[victim.Key].fresh += 2
	if faults := c.check(t); !strings.Contains(strings.Join(faults, " "), "the first") {
		t.Errorf("%s: an order that was sold anew twice went unnoticed: %v", c.name, faults)
	}
	c.told[victim.Key].fresh -= 2
	if refused.Key != "" {
		c.told[refused.Key].sold++
		if len(c.check(t)) == 0 {
			t.Errorf("%s: an order both sold and sold out went unnoticed", c.name)
		}
		c.told[refused.Key].sold--
	}
}
