package lease

import (
	"context"
	"sync"

	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Shares are what the Lockers of one pool and TTL have in common, by K: a backend, its member, and
// what it waits for. Of is what the driver keeps beside its Backend.
type Shares[K comparable, Of any] struct {
	mu sync.Mutex
	by map[K]*Share[Of]
}

// Share is one of them.
type Share[Of any] struct {
	Of      Of
	Member  *member.Member
	backend Backend
	waits   *Waits
	refs    int

	reconciler *reconciler
}

// Open returns the share of key. The first call for a key opens its backend.
func (s *Shares[K, Of]) Open(key K, o member.Options, open func() (Of, Backend, error)) (*Share[Of], error) {
	s.mu.Lock()
	share := s.existing(key)
	s.mu.Unlock()
	if share != nil {
		return share, nil
	}
	of, b, err := open() // it may take long, which is not for others to wait for
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if share = s.existing(key); share != nil { // another call was faster
		go b.Close()
		return share, nil
	}
	share = &Share[Of]{Of: of, Member: member.New(b.Member, o), backend: b, refs: 1}
	share.waits = newWaits(b.Driver, share.Member, o.Clock)
	share.reconciler = newReconciler(b, share.Member, o.Clock)
	if s.by == nil {
		s.by = make(map[K]*Share[Of])
	}
	s.by[key] = share
	return share, nil
}

// existing returns a share that exists already, or nil. s.mu is held.
func (s *Shares[K, Of]) existing(key K) *Share[Of] {
	share := s.by[key]
	if share != nil {
		share.refs++
	}
	return share
}

// Leaver returns the function with which a user of the share leaves: once, however often it is
// called.
func (s *Shares[K, Of]) Leaver(key K) func(context.Context) error {
	var once sync.Once
	return func(ctx context.Context) (err error) {
		once.Do(func() { err = s.close(ctx, key) })
		return err
	}
}

// close ends a share with its last user: the member's heartbeat, and all that is still held. If the
// server does not answer, this continues after ctx has ended. leave waits for it for a second
// longer.
func (s *Shares[K, Of]) close(ctx context.Context, key K) error {
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
	done, err := member.AwaitDeregister(ctx, func() error {
		share.waits.close()
		share.reconciler.close()
		err := share.Member.Close(ctx)
		share.backend.Close()
		return err
	})
	switch {
	case !done:
		return deregisterError(sqlerr.Unresolved, ctxerr.Of(ctx))
	case err != nil:
		return deregisterError(share.backend.Traits.Classify(err), err)
	}
	return nil
}

// deregisterError returns the error of a member that could not leave.
func deregisterError(is sqlerr.Class, err error) error {
	const what = "leaving: what this process still held is free when its TTL is over"
	return sqlerr.Wrap(is, err, what, "no reply")
}
