package inventory

import (
	"sync"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// seen remembers what was last seen to be left of SKUs. It answers nobody, as others sell and
// restock too: it only saves those who ask for more the short way, which would fail, and sends
// them to where they are decided under the row lock, together with others.
type seen struct {
	spread bool // the short way sells from every bucket, and not from the first alone

	mu   sync.Mutex
	left map[string]int64
}

// maxSeen bounds the memory. Forgetting costs a statement, nothing else.
const maxSeen = 65536

// tooFew tells whether less was left of an SKU than is asked for: by all requests together where
// they are of one SKU, or by any of them.
func (s *seen) tooFew(reqs ...Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var asked int64
	for i, r := range reqs {
		if i == 0 || r.SKU != reqs[i-1].SKU {
			asked = 0
		}
		asked += r.Qty
		if left, ok := s.left[r.SKU]; ok && left < asked {
			return true
		}
	}
	return false
}

// note takes over what one statement left behind.
func (s *seen) note(sku string, left int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == nil || len(s.left) >= maxSeen {
		s.left = make(map[string]int64)
	}
	s.left[sku] = left
}

// noteAll takes over what one transaction saw and is about to take.
func (s *seen) noteAll(books engine.Books, plan engine.Plan) {
	for sku, buckets := range books.Stock {
		var left int64
		for _, b := range buckets {
			if s.inReach(b.Number) {
				left += b.Left
			}
		}
		for _, u := range plan.Take {
			if u.SKU == sku && s.inReach(u.Bucket) {
				left -= u.Qty
			}
		}
		s.note(sku, left)
	}
}

func (s *seen) inReach(bucket int32) bool { return s.spread || bucket == 0 }

// forget is for when stock came in.
func (s *seen) forget(sku string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, sku)
}
