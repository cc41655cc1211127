package lock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// countedLeases counts how many acquisitions have begun.
type countedLeases struct {
	Leases
	n atomic.Int64
}

func (c *countedLeases) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	c.n.Add(1)
	return c.Leases.Acquire(ctx, key, opts...)
}

// aResignationHandsOver has the leader resign while the other process waits.
func aResignationHandsOver(t *testing.T, v *env) {
	type leader struct {
		i    int
		term dblock.Fence
	}
	ctx, stop := context.WithCancel(suite.Soon(t))
	leads := make(chan leader, 100)
	var electors [2]*dblock.Elector
	var leases [2]*countedLeases
	var terms [2]int64
	var runs sync.WaitGroup
	for i := range electors {
		leases[i] = &countedLeases{Leases: v.process(t, LeaseOptions{})}
		electors[i] = suite.Must(dblock.NewElector(leases[i], "leader", dblock.ElectorOptions{
			Data: fmt.Append(nil, "address ", i), Failed: func(err error) { t.Errorf("candidate %d: %v", i, err) },
		}))(t)
		runs.Go(func() {
			assert.ErrorIs(t, electors[i].Run(ctx, func(ctx context.Context, term dblock.Fence) error {
				leads <- leader{i, term}
				<-ctx.Done()
				return nil
			}), context.Canceled)
		})
	}
	defer runs.Wait()
	defer stop()
	now := suite.Wait(t, leads, "a leader")
	for range 5 {
		terms[now.i]++
		suite.Until(t, "the other one waits", func() bool { return leases[1-now.i].n.Load() > terms[1-now.i] })
		assert.NoError(t, electors[now.i].Resign(ctx))
		before := now
		now = suite.Wait(t, leads, "a leader")
		assert.Equal(t, 1-before.i, now.i)
		assert.Greater(t, now.term.Token, before.term.Token)
		h := suite.Must(electors[before.i].Leader(ctx))(t)
		assert.Equal(t, now.term, h.Fence)
		assert.Equal(t, fmt.Sprint("address ", now.i), string(h.Data))
	}
}
