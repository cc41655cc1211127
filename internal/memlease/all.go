package memlease

import (
	"context"

	"github.com/dblock-go/dblock/internal/lease"
)

// AcquireAll grants a batch as a whole, or nothing of it.
func (e *Engine) AcquireAll(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	answers := make([]lease.Answer, len(asks))
	err := e.call(ctx, "AcquireAll", func(s *Server) {
		all, serves := true, s.serves(by)
		for i, a := range asks {
			var free bool
			answers[i], free = s.refuse(a, serves)
			all = all && free
		}
		for i := 0; all && i < len(asks); i++ {
			answers[i] = s.grant(by, asks[i])
		}
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// MakeFree makes the rows of keys.
func (e *Engine) MakeFree(ctx context.Context, keys []string) error {
	return e.call(ctx, "MakeFree", func(s *Server) {
		for _, key := range keys {
			s.lease(key)
		}
	})
}

// ReleaseAll gives a set back.
func (e *Engine) ReleaseAll(ctx context.Context, backs []lease.Back) ([]lease.Returned, error) {
	return e.Release(ctx, backs)
}
