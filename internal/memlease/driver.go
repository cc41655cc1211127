package memlease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Driver is one process's access to a Server.
type Driver struct {
	s *Server

	mu     sync.Mutex
	around Around
}

var _ lease.Driver = (*Driver)(nil)

// Around is what happens around each call of a Driver: without run it is never sent, with an error
// after run its answer is lost, and either may take its time. The call has the name of the method,
// or for a batch of its kind; an Acquire that only hands over is a HandOver.
type Around func(ctx context.Context, call string, run func() error) error

// Open makes a Driver.
func (s *Server) Open() *Driver { return &Driver{s: s} }

// Disturb has around run around each call from now on; nil: nothing does.
func (d *Driver) Disturb(around Around) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.around = around
}

// Failure is an error of a Driver, of the class As.
type Failure struct {
	As  sqlerr.Class
	Err error
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns what went wrong.
func (f *Failure) Unwrap() error { return f.Err }

// Classify returns the class of an error. If a context has ended, the call was not sent.
func (d *Driver) Classify(err error) sqlerr.Class {
	var f *Failure
	switch {
	case err == nil:
		return sqlerr.Unclassified
	case errors.As(err, &f):
		return f.As
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return sqlerr.Busy
	}
	return sqlerr.Unresolved // as the real ones: what is not known to be harmless is not
}

// Backend returns what a LeaseLocker needs.
func (d *Driver) Backend() lease.Backend {
	return lease.Backend{Member: d, Driver: d, Inspector: d, Traits: lease.Traits{Classify: d.Classify}, Close: func() {}}
}

// call runs one statement: nothing of it where ctx has ended.
func (d *Driver) call(ctx context.Context, name string, f func(s *Server)) error {
	d.mu.Lock()
	around := d.around
	d.mu.Unlock()
	run := func() error {
		if ctx.Err() != nil {
			return ctxerr.Of(ctx)
		}
		d.s.mu.Lock()
		defer d.s.mu.Unlock()
		f(d.s)
		return nil
	}
	if around == nil {
		return run()
	}
	return around(ctx, name, run)
}

// Register makes the member's row.
func (d *Driver) Register(ctx context.Context, id member.ID, label string, ttl time.Duration) error {
	return d.call(ctx, "Register", func(s *Server) {
		s.members[id] = &memberRow{label: label}
		s.expireAfter(id, ttl)
	})
}

// Heartbeat moves the member's end. It does not revive a member that has expired.
func (d *Driver) Heartbeat(ctx context.Context, id member.ID, ttl time.Duration) (beat int64, alive bool, err error) {
	err = d.call(ctx, "Heartbeat", func(s *Server) {
		if alive = s.alive(id); alive {
			s.expireAfter(id, ttl)
			s.members[id].heartbeat++
			beat = s.members[id].heartbeat
		}
	})
	return beat, alive, err
}

// Deregister deletes the member's row.
func (d *Driver) Deregister(ctx context.Context, id member.ID) error {
	return d.call(ctx, "Deregister", func(s *Server) {
		s.drop(id)
		s.notifyOf(id)
	})
}

// Broken is 0: there are no connections.
func (d *Driver) Broken() int64 { return 0 }

// Wait notes for ttl that a process waits for keys; with ttl 0 it ends that.
func (d *Driver) Wait(ctx context.Context, keys []string, id member.ID, ttl time.Duration) error {
	name := "Wait"
	if ttl == 0 {
		name = "StopWaiting"
	}
	return d.call(ctx, name, func(s *Server) {
		for _, key := range keys {
			if s.waiters[key] == nil {
				s.waiters[key] = make(map[member.ID]time.Time)
			}
			s.waiters[key][id] = s.clock.Now().Add(ttl)
			if ttl == 0 {
				delete(s.waiters[key], id)
			}
			if len(s.waiters[key]) == 0 {
				delete(s.waiters, key)
			}
		}
	})
}

// OthersWait reports whether another live member waits for a key.
func (d *Driver) OthersWait(ctx context.Context, key string, id member.ID) (others bool, err error) {
	err = d.call(ctx, "OthersWait", func(s *Server) {
		for by, until := range s.waiters[key] {
			others = others || by != id && until.After(s.clock.Now()) && s.alive(by)
		}
	})
	return others, err
}

// Listen calls wake with each key that was released while another process waited.
func (d *Driver) Listen(ctx context.Context, ready func(), wake func(key string)) error {
	if err := d.call(ctx, "Listen", func(*Server) {}); err != nil {
		return err
	}
	return d.s.listen(ctx, ready, wake)
}
