package inventory

import (
	"sync"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// shortages remembers what was last seen to be left of SKUs that could not serve somebody. It
// answers nobody: it only saves those who ask for more the short way, which would fail, and sends
// them to where their refusal is decided, under the row lock, together with others'.
type shortages struct {
	mu   sync.Mutex
	left map[string]int64
}

// maxShortages bounds the memory. Forgetting costs a statement, nothing else.
const maxShortages = 65536

// covers tells whether less was left than r asks for.
func (s *shortages) covers(r Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, short := s.left[r.SKU]
	return short && left < r.Qty
}

// note takes over what one transaction saw and did.
func (s *shortages) note(reqs []Request, answers []answer, books engine.Books) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sku := range books.Stock {
		delete(s.left, sku)
	}
	for i, a := range answers {
		out, refused := a.Err.(*SoldOutError)
		if !refused || out.Replayed {
			continue
		}
		if s.left == nil || len(s.left) >= maxShortages {
			s.left = make(map[string]int64)
		}
		s.left[reqs[i].SKU] = out.Available // the last one stands for what is left in the end
	}
}
