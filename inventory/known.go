package inventory

import (
	"hash/maphash"
	"sync"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// known remembers what this process has seen recorded of late: keys, and what buyers have used of their limits. It answers nobody, as
// others sell and cancel too: it only says who is sent which way, and each way asks the database. So it may forget, and take one for
// another.
type known struct {
	seed maphash.Seed

	mu   sync.Mutex
	keys recent
	used recent // by quota
}

func newKnown() *known { return &known{seed: maphash.MakeSeed()} }

// foregone tells that an order is recorded, or over its buyer's limit, as far as is known: a replay, or a bot.
func (k *known) foregone(o *order) bool {
	key, quota := k.key(o.Key), k.quota(o)
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, recorded := k.keys.get(key); recorded {
		return true
	}
	if o.Limit == 0 {
		return false
	}
	used, _ := k.used.get(quota)
	return used+o.Qty > o.Limit
}

// overLimit lists the buyers whose orders are over their limit, as far as is known.
func (k *known) overLimit(orders []order) (buyers []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range orders {
		o := &orders[i]
		if used, _ := k.used.get(k.quota(o)); o.Limit > 0 && used+o.Qty > o.Limit {
			buyers = append(buyers, o.Buyer)
		}
	}
	return buyers
}

// split tells those who are known to have taken some of an SKU, under a limit, from others.
func (k *known) split(sku string, all driver.Takes) (strangers, regulars driver.Takes) {
	n := len(all.Buyers)
	strangers = driver.Takes{Buyers: make([]string, 0, n), Units: make([]int64, 0, n)}
	regulars = driver.Takes{Buyers: make([]string, 0, n), Units: make([]int64, 0, n)}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, buyer := range all.Buyers {
		to := &strangers
		if _, found := k.used.get(k.hash(driver.Quota{SKU: sku, Buyer: buyer})); found {
			to = &regulars
		}
		to.Buyers, to.Units = append(to.Buyers, buyer), append(to.Units, all.Units[i])
	}
	return strangers, regulars
}

// noteAnswers takes over what a batch was told that is recorded.
func (k *known) noteAnswers(orders []order, answers []answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range answers {
		o, a := &orders[i], &answers[i]
		if a.Value.State == 0 || a.Err != nil && !a.Value.Replayed {
			continue
		}
		k.keys.put(k.key(o.Key), 0)
		if o.Limit > 0 && !a.Value.Replayed {
			quota := k.quota(o)
			used, _ := k.used.get(quota)
			k.used.put(quota, used+o.Qty)
		}
	}
}

// noteUsed takes over what was read.
func (k *known) noteUsed(used map[driver.Quota]int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for q, n := range used {
		k.used.put(k.hash(q), n)
	}
}

// noteReturned takes over what was given back.
func (k *known) noteReturned(counts []driver.Count) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range counts {
		quota := k.hash(c.Quota)
		if used, found := k.used.get(quota); found {
			k.used.put(quota, max(0, used-c.Qty))
		}
	}
}

func (k *known) key(key string) uint64 { return maphash.String(k.seed, key) }

func (k *known) quota(o *order) uint64 { return k.hash(driver.Quota{SKU: o.SKU, Buyer: o.Buyer}) }

func (k *known) hash(q driver.Quota) uint64 { return maphash.Comparable(k.seed, q) }

const (
	recentSets = 1 << 15 // 2 MB in all
	recentWays = 4       // places of a set, which is one line of the processor's cache
)

// recent is a map that remembers of each set of hashes those that were put or asked for last.
type recent struct {
	sets [][recentWays]place // nil: nothing was ever put
}

type place struct {
	hash uint64 // 0: it is free
	v    int64
}

func (r *recent) get(hash uint64) (v int64, found bool) {
	if r.sets == nil {
		return 0, false
	}
	set := &r.sets[hash%recentSets]
	for i, p := range set {
		if p.hash == hash {
			copy(set[1:i+1], set[:i])
			set[0] = p
			return p.v, true
		}
	}
	return 0, false
}

func (r *recent) put(hash uint64, v int64) {
	if r.sets == nil {
		r.sets = make([][recentWays]place, recentSets)
	}
	if _, found := r.get(hash); !found {
		set := &r.sets[hash%recentSets]
		copy(set[1:], set[:])
	}
	r.sets[hash%recentSets][0] = place{hash, v}
}
