package inventory

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

const (
	maxLatches    = 1024 // SKUs
	latchCounters = 1024
)

// latches know which SKUs were sold out a moment ago, as a batch has seen. An order for such an SKU is
// looked up, and refused without a lock if its key is not recorded. A latch ends when units come in through this Store.
type latches struct {
	lasts time.Duration // 0: there are none
	seed  maphash.Seed
	news  [latchCounters]atomic.Uint64 // how often units came in, by the hash of their SKU

	mu    sync.Mutex
	until map[string]time.Time
}

func newLatches(lasts time.Duration) *latches {
	return &latches{lasts: lasts, seed: maphash.MakeSeed(), until: map[string]time.Time{}}
}

func (l *latches) counter(sku string) *atomic.Uint64 {
	return &l.news[maphash.String(l.seed, sku)%latchCounters]
}

// holds tells that an SKU is known to be sold out.
func (l *latches) holds(sku string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.until[sku])
}

// drop is for when units come in, or may have.
func (l *latches) drop(sku string) {
	if l.lasts == 0 {
		return
	}
	l.counter(sku).Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, sku)
}

// prove is for an SKU of which nothing was left in a batch that was sent at a time. news is what its counter was then: if units
// have come in since, the batch proves nothing.
func (l *latches) prove(sku string, news uint64, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counter(sku).Load() != news {
		return
	}
	if _, found := l.until[sku]; !found && len(l.until) >= maxLatches {
		clear(l.until) // each is proved again
	}
	l.until[sku] = sent.Add(l.lasts)
}

// latched is the first SKU of an order that is known to be sold out.
func (s *Store) latched(o *order, now time.Time) (line Line, sold bool) {
	if s.latches.lasts == 0 {
		return line, false
	}
	for _, l := range o.each() {
		if !l.Unstocked && s.latches.holds(l.SKU, now) {
			return l, true
		}
	}
	return line, false
}

// proofs are what a batch may prove: how often units of its SKUs had come in before it was sent.
type proofs struct {
	sent time.Time
	news map[string]uint64
}

func (s *Store) beforeProof(skus []string) proofs {
	p := proofs{sent: time.Now()}
	if s.latches.lasts > 0 {
		p.news = make(map[string]uint64, len(skus))
		for _, sku := range skus {
			p.news[sku] = s.latches.counter(sku).Load()
		}
	}
	return p
}

// latch takes over what a transaction has seen that is committed: all of an SKU's rows, and nothing in them.
func (s *Store) latch(books driver.Books, plan driver.Plan, p proofs) {
	if s.latches.lasts == 0 {
		return
	}
	for sku := range books.Stock {
		if plan.Left(books, sku) <= 0 && !books.Skipped(sku) {
			s.latches.prove(sku, p.news[sku], p.sent)
		}
	}
}

// cameIn is for when units of an SKU came in, or may have.
func (s *Store) cameIn(sku string) {
	s.seen.forget(sku)
	s.latches.drop(sku)
}
