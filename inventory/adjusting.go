package inventory

import (
	"context"
	"sync"
)

// adjusting admits the calls that change the stock of an SKU beside orders. They wait for its row,
// each on a connection. So one call of an SKU is admitted at a time, and few in all: the other
// connections of the pool are left to orders.
type adjusting struct {
	all chan struct{}

	mu    sync.Mutex
	bySKU map[string]*adjustingSKU
}

type adjustingSKU struct {
	taken chan struct{} // holds one
	calls int           // that have it, or wait for it
}

// maxAdjusting is how many calls are admitted at once, or half of the pool if that is less.
const maxAdjusting = 4

func newAdjusting(connections int) *adjusting {
	n := maxAdjusting
	if connections > 0 {
		n = max(1, min(n, connections/2))
	}
	return &adjusting{all: make(chan struct{}, n), bySKU: make(map[string]*adjustingSKU)}
}

// acquire waits for the turn of a call while ctx lives. If it returns true, leave ends the turn.
func (t *adjusting) acquire(ctx context.Context, sku string) (leave func(), ok bool) {
	t.mu.Lock()
	of := t.bySKU[sku]
	if of == nil {
		of = &adjustingSKU{taken: make(chan struct{}, 1)}
		t.bySKU[sku] = of
	}
	of.calls++
	t.mu.Unlock()
	if !take(ctx, of.taken) {
		t.drop(sku, of)
		return nil, false
	}
	if !take(ctx, t.all) {
		<-of.taken
		t.drop(sku, of)
		return nil, false
	}
	return func() {
		<-t.all
		<-of.taken
		t.drop(sku, of)
	}, true
}

func take(ctx context.Context, one chan struct{}) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case one <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *adjusting) drop(sku string, of *adjustingSKU) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.calls--; of.calls == 0 {
		delete(t.bySKU, sku)
	}
}
