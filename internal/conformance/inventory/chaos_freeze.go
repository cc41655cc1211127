package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

const (
	frozenTimeout = time.Second // Options.Timeout

	// A call waits for the one before it and then for its own statement, each with a rollback of up
	// to a second; the rest is for a machine that is busy with other tests.
	frozenBound = 2*(frozenTimeout+time.Second) + 6*time.Second
)

// frozenCall is a call that was sent to a frozen server.
type frozenCall struct {
	name string
	req  inventory.Request // of an order
	err  error
	took time.Duration
}

// answersWhileFrozen sends calls of every kind to a server that is stopped where it is: they end
// in time, and what they say stays true when it goes on. The callers' contexts never end.
func answersWhileFrozen(t *testing.T, s *env, server *devdb.Server) {
	s.stock(t, "frozen", 1000)
	stores := map[string]*inventory.Store{}
	for _, strategy := range s.e.strategies() {
		stores[strategy.String()] = s.open(t, inventory.Options{Strategy: strategy, Timeout: frozenTimeout})
	}
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	control := make(chan error, 1)
	go func() { control <- naiveSale(context.Background(), s.db, s.e.Kind, "frozen") }()
	calls, ends := frozenCalls(stores)
	late := time.NewTimer(frozenBound)
	defer late.Stop()
	got := []frozenCall{}
	for len(got) < calls && !t.Failed() {
		select {
		case c := <-ends:
			got = append(got, c)
		case <-late.C:
			t.Errorf("%d of %d calls hang on a frozen server after %v", calls-len(got), calls, frozenBound)
		}
	}
	select {
	case err := <-control:
		t.Errorf("a call without a bound has ended with %v: the server was not frozen, and this shows nothing", err)
	default:
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-control; err != nil {
		t.Errorf("the control, after the thaw: %v", err)
	}
	for len(got) < calls {
		got = append(got, <-ends)
	}
	var slowest time.Duration
	for _, c := range got {
		slowest = max(slowest, c.took)
		if !errors.Is(c.err, dblock.ErrBusy) && !errors.Is(c.err, dblock.ErrUnavailable) && !suite.IsUnknown(c.err) {
			t.Errorf("%s on a frozen server: %v", c.name, c.err)
		}
		if c.req.Key != "" {
			if err := s.honest(t, c.req, c.err); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	t.Logf("%d calls on a frozen server, Options.Timeout %v: the slowest took %v", calls, frozenTimeout, slowest)
	s.sound(t)
}

// frozenCalls sends them and returns how many there are.
func frozenCalls(stores map[string]*inventory.Store) (n int, ends <-chan frozenCall) {
	got := make(chan frozenCall)
	send := func(name string, req inventory.Request, call func(ctx context.Context) error) {
		n++
		go func() {
			start := time.Now()
			err := call(context.Background())
			got <- frozenCall{name, req, err, time.Since(start)}
		}()
	}
	for strategy, store := range stores {
		for i := range 20 {
			r := order(fmt.Sprintf("frozen %s %d", strategy, i), "frozen", 1)
			send(strategy+": reserve", r, func(ctx context.Context) error {
				_, err := store.Reserve(ctx, r)
				return err
			})
		}
		none := inventory.Request{}
		send(strategy+": look up", none, func(ctx context.Context) error {
			_, err := store.Lookup(ctx, "frozen")
			return err
		})
		send(strategy+": audit", none, func(ctx context.Context) error {
			_, err := store.Audit(ctx)
			return err
		})
		send(strategy+": restock", none, func(ctx context.Context) error {
			_, err := store.Restock(ctx, inventory.Adjustment{ID: "frozen " + strategy, SKU: "frozen", Delta: 1})
			return err
		})
	}
	return n, got
}
