package inventory

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// skuCache is what a process remembers of SKUs, orders and buyers. It may be wrong, as other
// processes sell and restock too. So it decides which way an order is sent, and each way asks the
// database. The exception is Options.SoldOutTTL: an order is refused for what was read so long ago.
//
//	what                        is learned from             is forgotten when
//	units left of an SKU        each batch and statement    units come in through this Store
//	an SKU is sold out          a batch that read all rows  the same, and after SoldOutTTL
//	keys that are recorded      answers                     others push them out
//	what buyers used of limits  answers, and what was read  others push them out; a return counts
//	orders are replayed         a batch that met its keys   after so many batches
//
// A proof that an SKU is sold out is dropped if units came in after its reading began: see begin.
type skuCache struct {
	ttl     time.Duration // of what is sold out; 0: that is not remembered
	replays atomic.Int64  // batches yet that look up what is recorded; negative: none

	mu    sync.Mutex
	skus  map[string]skuState
	clock uint64 // counts how often units came in, or SKUs were forgotten
	floor uint64 // readings that began before this prove nothing: SKUs were forgotten

	seed maphash.Seed
	keys recent
	used recent // by quota
}

// skuState is one SKU.
type skuState struct {
	known   bool // left is
	left    int64
	soldOut time.Time // until then it counts as sold out
	cameIn  uint64    // when units came in last, by skuCache.clock
}

const (
	maxSKUs = 65536 // bounds the memory. Forgetting costs a statement, nothing else.

	// cautious is how many batches look up what is recorded after one ran into a key that was
	// taken: replays come in crowds, and each would have its batch decided twice.
	cautious = 64
)

func newCache(ttl time.Duration) *skuCache {
	return &skuCache{ttl: ttl, skus: make(map[string]skuState), seed: maphash.MakeSeed()}
}

// put forgets all SKUs if there are too many.
func (c *skuCache) put(sku string, s skuState) {
	if _, found := c.skus[sku]; !found && len(c.skus) >= maxSKUs {
		clear(c.skus)
		c.clock++
		c.floor = c.clock
	}
	c.skus[sku] = s
}

// cameIn is for when units of an SKU came in, or may have.
func (c *skuCache) cameIn(sku string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	if c.ttl == 0 {
		delete(c.skus, sku)
		return
	}
	c.put(sku, skuState{cameIn: c.clock})
}

// reading is when a statement began that reads all of an SKU's stock.
type reading struct {
	at    time.Time
	clock uint64
}

func (c *skuCache) begin() reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return reading{time.Now(), c.clock}
}

// soldOutBy lists the SKUs that are sold out once a plan is committed: all of their rows were read,
// and nothing is left in them.
func (c *skuCache) soldOutBy(books driver.Books, plan driver.Plan) (skus []string) {
	for sku := range books.Stock {
		if c.ttl > 0 && plan.Left(books, sku) <= 0 && !books.Skipped(sku) {
			skus = append(skus, sku)
		}
	}
	return skus
}

// noteSoldOut takes over what was read to be sold out, unless units came in meanwhile.
func (c *skuCache) noteSoldOut(r reading, skus ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sku := range skus {
		if s := c.skus[sku]; r.clock >= c.floor && r.clock >= s.cameIn {
			s.soldOut = r.at.Add(c.ttl)
			c.put(sku, s)
		}
	}
}

// soldOut returns the first line of an order whose SKU is remembered as sold out.
func (c *skuCache) soldOut(o *order, now time.Time) (Line, bool) {
	if c.ttl == 0 {
		return Line{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range o.each() {
		if !l.Unstocked && now.Before(c.skus[l.SKU].soldOut) {
			return l, true
		}
	}
	return Line{}, false
}

// noteLeft takes over what one statement left behind.
func (c *skuCache) noteLeft(sku string, left int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.skus[sku]
	s.known, s.left = true, left
	c.put(sku, s)
}

// noteBooks takes over what a transaction saw in this process's bucket and is about to take.
func (c *skuCache) noteBooks(books driver.Books, plan driver.Plan, own int32) {
	for sku, buckets := range books.Stock {
		var left int64
		for _, b := range buckets {
			if b.Number == own {
				left += b.Left
			}
		}
		for _, u := range plan.Take {
			if u.SKU == sku && u.Bucket == own {
				left -= u.Qty
			}
		}
		c.noteLeft(sku, left)
	}
}

// lacks reports that an order wants more of some SKU than was last seen to be left.
func (c *skuCache) lacks(o *order) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range o.each() {
		if s := c.skus[l.SKU]; !l.Unstocked && s.known && l.Qty > s.left {
			return true
		}
	}
	return false
}

// supply is how much seems to be there for a batch.
type supply int

const (
	enough  supply = iota // for all
	unknown               // of some SKU
	short                 // too few for all orders of some SKU
	none                  // of some SKU
)

// supply estimates how much there is for a batch. Orders for one SKU stand together.
func (c *skuCache) supply(batch []order) (there supply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sku string
	var wanted int64
	compare := func() {
		if wanted > 0 {
			there = max(there, c.skus[sku].supply(wanted))
		}
	}
	for i := range batch {
		for _, l := range batch[i].each() {
			if l.Unstocked {
				continue
			}
			if l.SKU != sku {
				compare()
				sku, wanted = l.SKU, 0
			}
			wanted += l.Qty
		}
	}
	compare()
	return there
}

func (s skuState) supply(wanted int64) supply {
	switch {
	case !s.known:
		return unknown
	case s.left <= 0:
		return none
	case s.left < wanted:
		return short
	}
	return enough
}

// metReplays is for a batch that ran into a key that was taken.
func (c *skuCache) metReplays() { c.replays.Store(cautious) }

// expectsReplays reports whether the next batch looks up what is recorded.
func (c *skuCache) expectsReplays() bool { return c.replays.Add(-1) >= 0 }

// isRecorded reports that an order is recorded, or over its buyer's limit: a replay, or a bot.
func (c *skuCache) isRecorded(o *order) bool {
	key := c.keyHash(o.Key)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, recorded := c.keys.get(key)
	return recorded || c.isOverLimit(o)
}

func (c *skuCache) isOverLimit(o *order) bool {
	if o.Limit == 0 {
		return false
	}
	used, _ := c.used.get(c.quotaHash(o.quota()))
	return used+o.Qty > o.Limit
}

// overLimit lists the buyers whose orders are over their limit.
func (c *skuCache) overLimit(orders []order) (buyers []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range orders {
		if c.isOverLimit(&orders[i]) {
			buyers = append(buyers, orders[i].Buyer)
		}
	}
	return buyers
}

// noteRecorded notes what a batch found recorded.
func (c *skuCache) noteRecorded(orders []order, results []result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range results {
		o, a := &orders[i], &results[i]
		if a.Value.State == 0 || a.Err != nil && !a.Value.Replayed {
			continue
		}
		c.keys.put(c.keyHash(o.Key), 0)
		if o.Limit > 0 && !a.Value.Replayed {
			quota := c.quotaHash(o.quota())
			used, _ := c.used.get(quota)
			c.used.put(quota, used+o.Qty)
		}
	}
}

// noteUsed takes over what was read.
func (c *skuCache) noteUsed(used map[driver.Quota]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q, n := range used {
		c.used.put(c.quotaHash(q), n)
	}
}

// noteReturned takes over what was given back.
func (c *skuCache) noteReturned(counts []driver.Count) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, count := range counts {
		quota := c.quotaHash(count.Quota)
		if used, found := c.used.get(quota); found {
			c.used.put(quota, max(0, used-count.Qty))
		}
	}
}

func (c *skuCache) keyHash(key string) uint64 { return maphash.String(c.seed, key) }

func (c *skuCache) quotaHash(q driver.Quota) uint64 { return maphash.Comparable(c.seed, q) }
