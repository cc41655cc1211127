package lease

import (
	"context"
	"sync"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Shares are what the Lockers of one pool and TTL have in common, by K: an engine, its member, and what it
// waits for.
type Shares[K comparable, E Engine] struct {
	mu sync.Mutex
	by map[K]*Share[E]
}

// Share is one of them.
type Share[E Engine] struct {
	Engine E
	Member *member.Member
	waits  *Waits
	refs   int
	close  func()

	reconciler *reconciler
}

// Enter returns the share of key, and opens an engine where it is the first; closeEngine ends that.
func (s *Shares[K, E]) Enter(key K, o member.Options, open func() (e E, closeEngine func(), err error)) (*Share[E], error) {
	s.mu.Lock()
	share := s.enter(key)
	s.mu.Unlock()
	if share != nil {
		return share, nil
	}
	e, closeEngine, err := open() // it may take long, which is not for others to wait for
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if share = s.enter(key); share != nil { // somebody was faster
		go closeEngine()
		return share, nil
	}
	share = &Share[E]{Engine: e, Member: member.New(e, o), refs: 1, close: closeEngine}
	share.waits = newWaits(e, share.Member, o.Clock)
	share.reconciler = newReconciler(e, share.Member, o.Clock)
	if s.by == nil {
		s.by = make(map[K]*Share[E])
	}
	s.by[key] = share
	return share, nil
}

// enter returns what others share already; nil: nobody does. s.mu is held.
func (s *Shares[K, E]) enter(key K) *Share[E] {
	share := s.by[key]
	if share != nil {
		share.refs++
	}
	return share
}

// Leaver returns how the one who entered leaves: once, however often it is called.
func (s *Shares[K, E]) Leaver(key K) func(context.Context) error {
	var once sync.Once
	return func(ctx context.Context) (err error) {
		once.Do(func() { err = s.leave(ctx, key) })
		return err
	}
}

// leave ends a share with the last who leaves: its member's heartbeat, and all that is still held. Where the server does not
// answer, this goes on after ctx has ended. Leave waits for it for a second longer.
func (s *Shares[K, E]) leave(ctx context.Context, key K) error {
	s.mu.Lock()
	share := s.by[key]
	share.refs--
	last := share.refs == 0
	if last {
		delete(s.by, key)
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	done, err := member.Leave(ctx, func() error {
		share.waits.close()
		share.reconciler.close()
		err := share.Member.Close(ctx)
		share.close()
		return err
	})
	switch {
	case !done:
		return notLeft(sqlerr.Unresolved, context.Cause(ctx))
	case err != nil:
		return notLeft(share.Engine.Classify(err), err)
	}
	return nil
}

// notLeft returns the error of a member that could not leave.
func notLeft(is sqlerr.Class, err error) error {
	const what = "leaving: what this process still held is free when its TTL is over"
	return sqlerr.Wrap(is, err, what, "no reply")
}
