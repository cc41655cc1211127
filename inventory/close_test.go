package inventory

import (
	"context"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// opensSlowly is a driver with one allotment. Its Locker is made when the test says so, even if the
// caller has gone.
type opensSlowly struct {
	driver.Driver
	opening chan struct{} // closed when that has begun
	open    chan struct{}
	closed  chan struct{}
}

func (opensSlowly) Failure(error) driver.Failure { return driver.Failure{} }

func (opensSlowly) Caps() driver.Caps { return driver.Caps{} }

func (opensSlowly) Due(context.Context, []string, int) ([]driver.Due, error) { return nil, nil }

func (opensSlowly) Allotted(context.Context) ([]driver.Units, error) {
	return []driver.Units{{SKU: "sale", Bucket: driver.FirstAllotment, Qty: 1}}, nil
}

func (e opensSlowly) Locker(context.Context) (dblock.Locker, error) {
	close(e.opening)
	<-e.open
	return slowLocker{closed: e.closed}, nil
}

type slowLocker struct {
	dblock.Locker
	closed chan struct{}
}

func (l slowLocker) Close(context.Context) error {
	close(l.closed)
	return nil
}

// TestCloseBesideAnOpening: Close ends with its context while a Sweep opens its Locker. The Sweep
// closes that Locker.
func TestCloseBesideAnOpening(t *testing.T) {
	t.Parallel()
	e := opensSlowly{opening: make(chan struct{}), open: make(chan struct{}), closed: make(chan struct{})}
	s, err := functions{}.NewStore(Options{}, func() (driver.Driver, error) { return e, nil })
	if err != nil {
		t.Fatal(err)
	}
	swept := make(chan error, 1)
	go func() {
		_, err := s.Sweep(context.Background(), 1)
		swept <- err
	}()
	<-e.opening
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v, want that its context has ended", err)
	}
	close(e.open)
	if err := <-swept; !errors.Is(err, dblock.ErrClosed) {
		t.Errorf("Sweep: %v, want ErrClosed", err)
	}
	<-e.closed
}
