package inventory

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

const (
	maxLatchKeys = 1 << 20         // of one SKU: 8 MB
	maxLatches   = 1024            // SKUs
	latchPause   = time.Second     // between two readings of an SKU's keys
	latchLoad    = 5 * time.Second // for such a reading
)

// latches answer for SKUs that are sold out, for a moment, without the database. What proves that is a batch that was decided
// under the row locks; but an order that was sold before must be told so even now, so the keys of all reservations of the SKU
// are read, too: while it is sold out there come no new ones. That holds until units come in, which raises the epoch of their row.
type latches struct {
	lasts time.Duration // 0: there are none
	seed  maphash.Seed
	began time.Time // what until counts from: the clock on the wall may be set back

	mu  sync.Mutex
	all atomic.Pointer[map[string]*latch] // replaced, never changed: it is read by every order
}

// latch is one SKU.
type latch struct {
	until atomic.Int64 // it answers until so long after latches.began; 0: it does not

	mu      sync.Mutex
	epoch   int64
	keys    []uint64 // hashed and sorted
	news    int      // how often it was dropped
	loading bool
	next    time.Time // for the next reading
}

func newLatches(lasts time.Duration) *latches {
	l := &latches{lasts: lasts, seed: maphash.MakeSeed(), began: time.Now()}
	l.all.Store(&map[string]*latch{})
	return l
}

// of returns the latch of an SKU; nil: it has none yet.
func (l *latches) of(sku string) *latch { return (*l.all.Load())[sku] }

// refuses tells that an SKU is known to be sold out, and that the key was not among its reservations.
func (l *latches) refuses(sku, key string, now time.Time) bool {
	one := l.of(sku)
	if one == nil || now.Sub(l.began) >= time.Duration(one.until.Load()) {
		return false
	}
	one.mu.Lock()
	keys := one.keys
	one.mu.Unlock()
	if keys == nil { // it was dropped just now: nobody is known not to be recorded
		return false
	}
	_, recorded := slices.BinarySearch(keys, maphash.String(l.seed, key))
	return !recorded
}

// lastsFrom has a latch answer for a moment; it is locked.
func (l *latches) lastsFrom(one *latch, sent time.Time) {
	one.until.Store(int64(sent.Add(l.lasts).Sub(l.began)))
}

// drop is for when units come in, or may have.
func (l *latches) drop(sku string) {
	one := l.of(sku)
	if one == nil {
		return
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.until.Store(0)
	one.keys, one.epoch = nil, 0
	one.news++
}

// news tells what had come in when a batch was sent: a proof from before that is none.
func (l *latches) news(sku string) int {
	one := l.of(sku)
	if one == nil {
		return 0
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.news
}

// prove is for an SKU of which nothing was left, under the row locks, at an epoch, in a batch that was sent at a time. It
// returns the latch where the SKU's keys have to be read for the proof to be of use.
func (l *latches) prove(sku string, epoch int64, news int, sent time.Time) (load *latch) {
	one := l.make(sku)
	one.mu.Lock()
	defer one.mu.Unlock()
	switch {
	case one.news != news:
		return nil
	case one.keys != nil && one.epoch == epoch:
		l.lastsFrom(one, sent)
		return nil
	case one.loading || sent.Before(one.next):
		return nil
	}
	one.loading = true
	return one
}

// loaded notes what was read after a proof, in one snapshot of a time that is not before sent. The latch may be none of the
// SKU's any more: nobody asks it then, and nobody tells it what comes in.
func (l *latches) loaded(one *latch, got engine.Keys, news int, sent time.Time, err error) {
	var hashes []uint64
	for _, key := range got.Keys {
		hashes = append(hashes, maphash.String(l.seed, key))
	}
	slices.Sort(hashes)
	one.mu.Lock()
	defer one.mu.Unlock()
	one.loading, one.next = false, sent.Add(latchPause)
	if err != nil || one.news != news || got.Left > 0 || len(hashes) == 0 || len(hashes) > maxLatchKeys {
		return
	}
	one.keys, one.epoch = hashes, got.Epoch
	l.lastsFrom(one, sent)
}

func (l *latches) make(sku string) *latch {
	if one := l.of(sku); one != nil {
		return one
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.of(sku); one != nil {
		return one
	}
	old := *l.all.Load()
	all := make(map[string]*latch, len(old)+1)
	if len(old) < maxLatches { // else it begins anew: what was proved is proved again
		for sku, one := range old {
			all[sku] = one
		}
	}
	one := &latch{}
	all[sku] = one
	l.all.Store(&all)
	return one
}

// latched refuses what is known to be sold out.
func (s *Store) latched(o *order, now time.Time) error {
	if s.latches.lasts == 0 {
		return nil
	}
	for _, l := range o.each() {
		if !l.Unstocked && s.latches.refuses(l.SKU, o.Key, now) {
			return &SoldOutError{Key: o.Key, SKU: l.SKU, Wanted: l.Qty, Latched: true}
		}
	}
	return nil
}

// proofs are what a batch may prove: what had come in of its SKUs before it was sent.
type proofs struct {
	sent time.Time
	news map[string]int
}

func (s *Store) beforeProof(skus []string) proofs {
	p := proofs{sent: time.Now()}
	if s.latches.lasts > 0 {
		p.news = make(map[string]int, len(skus))
		for _, sku := range skus {
			p.news[sku] = s.latches.news(sku)
		}
	}
	return p
}

// latch takes over what a transaction has seen that is committed: all of an SKU's rows, and nothing in them.
func (s *Store) latch(books engine.Books, plan engine.Plan, p proofs) {
	if s.latches.lasts == 0 {
		return
	}
	for sku, buckets := range books.Stock {
		left, epoch := total(buckets), int64(0)
		for _, u := range plan.Take {
			if u.SKU == sku {
				left -= u.Qty
			}
		}
		for _, b := range buckets {
			epoch += b.Epoch
		}
		if left > 0 || books.Skipped(sku) {
			continue
		}
		if one := s.latches.prove(sku, epoch, p.news[sku], p.sent); one != nil {
			s.behind(func(ctx context.Context) { s.loadLatch(ctx, sku, one, p.news[sku]) })
		}
	}
}

func (s *Store) loadLatch(ctx context.Context, sku string, one *latch, news int) {
	ctx, cancel := context.WithTimeout(ctx, latchLoad)
	defer cancel()
	sent := time.Now()
	got, err := s.engine.Keys(ctx, sku, maxLatchKeys+1)
	s.latches.loaded(one, got, news, sent, err)
}

// cameIn is for when units of an SKU came in, or may have.
func (s *Store) cameIn(sku string) {
	s.seen.forget(sku)
	s.latches.drop(sku)
}
