package inventory

import (
	"iter"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// seen remembers what was last seen to be left of SKUs. It answers no order, as other processes
// sell and restock too. It only chooses the way of an order: one that asks for more than that is
// looked at (see Store.look), and a batch that does is decided under the row lock.
type seen struct {
	own atomic.Int32 // the bucket that the short way sells from

	mu    sync.Mutex
	stock map[string]sight
}

// sight is one SKU.
type sight struct {
	known   bool
	left    int64 // as it was last seen
	claimed int64 // by batches under way, which may be seen in left already, or not
}

// maxSeen bounds the memory. Forgetting costs a statement, nothing else.
const maxSeen = 65536

// tooFew tells whether less is left of an SKU than r asks for.
func (s *seen) tooFew(r Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock[r.SKU].supply(r.Qty) >= few
}

// lacks tells that an order wants more of some SKU than was last seen to be left.
func (s *seen) lacks(o *order) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range o.each() {
		if sight := s.stock[l.SKU]; !l.Unstocked && sight.known && l.Qty > sight.left {
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
	few                   // too few for all who ask for some SKU
	none                  // of some SKU
)

// claim tells how much there is for a batch. Whoever asks meanwhile finds so much less, until
// unclaim. Those of one SKU stand together.
func (s *seen) claim(batch []order) (there supply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sku, asked := range perSKU(batch) {
		sight := s.stock[sku]
		there = max(there, sight.supply(asked))
		sight.claimed += asked
		s.put(sku, sight)
	}
	return there
}

func (s sight) supply(asked int64) supply {
	switch left := s.left - s.claimed; {
	case !s.known:
		return unknown
	case left <= 0:
		return none
	case left < asked:
		return few
	default:
		return enough
	}
}

func (s *seen) unclaim(batch []order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sku, asked := range perSKU(batch) {
		sight := s.stock[sku]
		sight.claimed = max(0, sight.claimed-asked)
		s.put(sku, sight)
	}
}

// perSKU adds up what a batch asks for, of orders that stand together.
func perSKU(batch []order) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		var sku string
		var asked int64
		for i := range batch {
			for _, l := range batch[i].each() {
				switch {
				case l.Unstocked:
					continue
				case l.SKU == sku:
					asked += l.Qty
					continue
				case asked > 0 && !yield(sku, asked):
					return
				}
				sku, asked = l.SKU, l.Qty
			}
		}
		if asked > 0 {
			yield(sku, asked)
		}
	}
}

// put forgets what says nothing.
func (s *seen) put(sku string, now sight) {
	if now == (sight{}) {
		delete(s.stock, sku)
		return
	}
	if s.stock == nil || len(s.stock) >= maxSeen {
		s.stock = make(map[string]sight)
	}
	s.stock[sku] = now
}

// note takes over what one statement left behind.
func (s *seen) note(sku string, left int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(sku, sight{true, left, s.stock[sku].claimed})
}

// noteAll takes over what one transaction saw and is about to take.
func (s *seen) noteAll(books driver.Books, plan driver.Plan) {
	for sku, buckets := range books.Stock {
		var left int64
		for _, b := range buckets {
			if b.Number == s.own.Load() {
				left += b.Left
			}
		}
		for _, u := range plan.Take {
			if u.SKU == sku && u.Bucket == s.own.Load() {
				left -= u.Qty
			}
		}
		s.note(sku, left)
	}
}

// forget is for when stock came in.
func (s *seen) forget(sku string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(sku, sight{claimed: s.stock[sku].claimed})
}
