package mysqllock

import (
	"testing"

	"github.com/dblock-go/dblock/internal/lease"
)

// TestAReleaseBesideALostLock: of a batch of two releases, one lock was lost before. Another
// process gets the key of the other one before the driver looks which of both it has freed. That
// one was not lost.
func TestAReleaseBesideALostLock(t *testing.T) {
	each(t, plain, func(r rig) {
		us, them := r.join("us"), r.join("them")
		backs := []lease.ReleaseRequest{r.take(us, ask("held")), r.take(us, ask("lost"))}
		r.release(backs[1]) // as a ForceRelease does
		freed, err := r.leases.free(r.ctx, backs, []int{0, 1})
		r.ok(err)
		r.take(them, ask("held"))
		results := make([]lease.ReleaseResult, len(backs))
		left, err := r.leases.findHeld(r.ctx, backs, []int{0, 1}, freed, results)
		r.ok(err)
		if freed != 1 || len(left) != 0 || !results[0].Freed {
			r.Errorf("freed %d, left %v: %+v", freed, left, results)
		}
		_, err = r.leases.findHeld(r.ctx, backs, []int{0, 1}, 0, results)
		r.ok(err)
		if results[0].Freed { // nothing was
			r.Errorf("%+v", results)
		}
	})
}
