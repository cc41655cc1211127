package memlease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Engine is one process's access to a Server.
type Engine struct {
	s *Server

	mu     sync.Mutex
	around Around
}

var _ lease.Engine = (*Engine)(nil)

// Around is what happens around each call of an Engine: without run it is never sent, with an error
// after run its answer is lost, and either may take its time. It is named as the method is; an Acquire that
// only hands over is a HandOver.
type Around func(ctx context.Context, call string, run func() error) error

// Open makes an Engine.
func (s *Server) Open() *Engine { return &Engine{s: s} }

// Disturb has around run around each call from now on; nil: nothing does.
func (e *Engine) Disturb(around Around) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.around = around
}

// Failure is an error of an Engine, of the class As.
type Failure struct {
	As  sqlerr.Class
	Err error
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns what went wrong.
func (f *Failure) Unwrap() error { return f.Err }

// Classify tells what an error means. A context that ended has kept the call from being sent.
func (e *Engine) Classify(err error) sqlerr.Class {
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

// Lingers is 0: no statement waits at the server.
func (e *Engine) Lingers() time.Duration { return 0 }

// LongestStatement is 0: no statement is too long.
func (e *Engine) LongestStatement() int { return 0 }

// call runs one statement: nothing of it where ctx has ended.
func (e *Engine) call(ctx context.Context, name string, f func(s *Server)) error {
	e.mu.Lock()
	around := e.around
	e.mu.Unlock()
	run := func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.s.mu.Lock()
		defer e.s.mu.Unlock()
		f(e.s)
		return nil
	}
	if around == nil {
		return run()
	}
	return around(ctx, name, run)
}

// Join makes the member's row.
func (e *Engine) Join(ctx context.Context, id member.ID, label string, ttl time.Duration) error {
	return e.call(ctx, "Join", func(s *Server) {
		s.members[id] = &memberRow{label: label}
		s.expireAfter(id, ttl)
	})
}

// Beat moves the member's end; it revives nobody.
func (e *Engine) Beat(ctx context.Context, id member.ID, ttl time.Duration) (beat int64, alive bool, err error) {
	err = e.call(ctx, "Beat", func(s *Server) {
		if alive = s.alive(id); alive {
			s.expireAfter(id, ttl)
			s.members[id].beat++
			beat = s.members[id].beat
		}
	})
	return beat, alive, err
}

// Leave deletes the member's row.
func (e *Engine) Leave(ctx context.Context, id member.ID) error {
	return e.call(ctx, "Leave", func(s *Server) {
		s.drop(id)
		s.notifyOf(id)
	})
}

// Broken is 0: there are no connections.
func (e *Engine) Broken() int64 { return 0 }

// Wait notes that a process waits for keys.
func (e *Engine) Wait(ctx context.Context, keys []string, id member.ID, ttl time.Duration) error {
	return e.call(ctx, "Wait", func(s *Server) {
		for _, key := range keys {
			if s.waiters[key] == nil {
				s.waiters[key] = make(map[member.ID]time.Time)
			}
			s.waiters[key][id] = s.clock.Now().Add(ttl)
		}
	})
}

// StopWaiting ends that.
func (e *Engine) StopWaiting(ctx context.Context, keys []string, id member.ID) error {
	return e.call(ctx, "StopWaiting", func(s *Server) {
		for _, key := range keys {
			delete(s.waiters[key], id)
			if len(s.waiters[key]) == 0 {
				delete(s.waiters, key)
			}
		}
	})
}

// OthersWait tells whether another member that is alive waits for a key.
func (e *Engine) OthersWait(ctx context.Context, key string, id member.ID) (others bool, err error) {
	err = e.call(ctx, "OthersWait", func(s *Server) {
		for by, until := range s.waiters[key] {
			others = others || by != id && until.After(s.clock.Now()) && s.alive(by)
		}
	})
	return others, err
}

// Listen calls wake with each key that was given back while somebody waited.
func (e *Engine) Listen(ctx context.Context, ready func(), wake func(key string)) error {
	if err := e.call(ctx, "Listen", func(*Server) {}); err != nil {
		return err
	}
	return e.s.listen(ctx, ready, wake)
}
