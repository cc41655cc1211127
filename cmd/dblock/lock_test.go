package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

// restarted is a server that is away when it is asked first.
type restarted struct {
	leases
	locker *dblocktest.LeaseLocker
	errs   []error
}

func (r *restarted) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	if len(r.errs) > 0 {
		err := r.errs[0]
		r.errs = r.errs[1:]
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	return r.locker.Acquire(ctx, key, opts...)
}

// TestLockWaitsForAServerThatIsAway: a wait goes on, and one line says why. Other errors end it.
func TestLockWaitsForAServerThatIsAway(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	c := &lockCmd{Key: "nightly"}
	r := &restarted{locker: dblocktest.New(t), errs: []error{dblock.ErrUnavailable, dblock.ErrOutcomeUnknown}}
	lock, err := c.acquire(t.Context(), streams{err: &out}, r, nil)
	require.NoError(t, err)
	assert.NoError(t, lock.Release(t.Context()))
	assert.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	assert.Contains(t, out.String(), "still waiting for nightly")

	r.errs = []error{dblock.ErrSchema}
	_, err = c.acquire(t.Context(), streams{err: &out}, r, nil)
	assert.ErrorIs(t, err, dblock.ErrSchema)
}
