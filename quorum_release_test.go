package dblock_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

// TestQuorumReleaseOfWhatWasTakenAway: a release says that the lock was lost if a majority of the
// nodes did not have it.
func TestQuorumReleaseOfWhatWasTakenAway(t *testing.T) {
	for taken := range 4 {
		t.Run(string(rune('0'+taken)), func(t *testing.T) {
			onCluster(t, func(t *testing.T, c cluster) {
				var told []dblock.Reason
				released := 0
				q, _ := c.process(t, "", dblock.QuorumOptions{Observer: dblock.Observer{
					Lost:     func(_ string, _ time.Duration, why dblock.Reason) { told = append(told, why) },
					Released: func(string, time.Duration) { released++ },
				}})
				lock := get(t, q, "k")
				time.Sleep(time.Second) // all nodes have answered
				for _, s := range c[:taken] {
					operator, err := s.NewLeaseLocker(dblocktest.LeaseOptions{})
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = operator.Close(t.Context()) }()
					held, err := operator.Holder(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					if err := operator.ForceRelease(t.Context(), "k", held.Fence.Token); err != nil {
						t.Fatal(err)
					}
				}
				err := lock.Release(t.Context())
				synctest.Wait()
				var lost *dblock.LostError
				is := errors.As(err, &lost) && lost.Reason == dblock.ReasonStolen
				if want := taken > 1; is != want || (err != nil) != want || len(told) > 0 != want || released > 0 == want {
					t.Errorf("%d of 3 nodes were taken: %v; told of %d releases and %v", taken, err, released, told)
				}
			})
		})
	}
}

// TestQuorumReleaseWhoseTimersAreLate: the first call of a process that was stopped past the end of
// its lock finds it lost.
func TestQuorumReleaseWhoseTimersAreLate(t *testing.T) {
	t.Parallel()
	var over atomic.Bool
	q := quorumOfPrompt(t, func() time.Time {
		if over.Load() {
			return time.Now().Add(-time.Second)
		}
		return time.Now().Add(time.Hour)
	})
	lock := get(t, q, "k")
	over.Store(true)
	if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("released with %v", err)
	}
}
