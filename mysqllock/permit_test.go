package mysqllock

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// permits asks for n of as many.
func permits(key string, n, limit int) lease.AcquireRequest {
	a := ask(key)
	a.Permits, a.Limit = n, limit
	return a
}

func (r rig) takePermitsOf(by lease.By, asks ...lease.AcquireRequest) []lease.AcquireResult {
	r.Helper()
	answers, err := r.permits.acquirePermits(r.ctx, by, asks)
	r.ok(err)
	return answers
}

func permitsBack(a lease.AcquireRequest) lease.ReleaseRequest {
	return lease.ReleaseRequest{Key: a.Key, Handle: a.Handle, Mode: dblock.ModePermit}
}

// TestPermitsBatch has one batch with several asks for each of two semaphores, and one that is
// unknown.
func TestPermitsBatch(t *testing.T) {
	each(t, settings, func(r rig) {
		us, them := r.join("us"), r.join("them")
		r.ok(r.permits.makeSemaphore(r.ctx, "a", 5))
		r.ok(r.permits.makeSemaphore(r.ctx, "a", 9))
		r.ok(r.SetPermits(r.ctx, "b", 1500))
		theirs := permits("a", 1, 5)
		before := r.takePermitsOf(them, theirs)[0]
		asks := []lease.AcquireRequest{
			permits("a", 3, 5), permits("b", 1499, 1500), permits("a", 2, 5), permits("c", 1, 1), permits("a", 1, 5), permits("a", 1, 9), permits("b", 1, 1500),
		}
		asks[2].Label, asks[2].Data, asks[2].Hold = "l'abel", []byte("da\x00ta"), time.Hour
		got := r.takePermitsOf(us, asks...)
		for _, i := range []int{1, 2, 4, 6} {
			if got[i].Token == 0 {
				r.Errorf("%d was not granted: %+v", i, got[i])
			}
		}
		if got[2].Token != got[4].Token || got[2].Token <= before.Token {
			r.Errorf("tokens %d, %d after %d", got[2].Token, got[4].Token, before.Token)
		}
		if got[0].Token != 0 || !got[0].Held || got[0].Stored != 5 || got[0].Holder.Token == 0 || len(got[0].Dead) != 0 {
			r.Errorf("what did not fit in: %+v", got[0])
		}
		if got[3].Token != 0 || got[3].Stored != 0 || got[3].Held || got[3].MemberGone || got[5].Token != 0 || got[5].Stored != 5 {
			r.Errorf("no such semaphore: %+v, another number: %+v", got[3], got[5])
		}
		r.kill(them)
		contended := permits("a", 2, 5)
		contended.Contended = true
		if got := r.takePermitsOf(us, contended)[0]; !got.Held || len(got.Dead) != 1 || got.Dead[0] != them.Member {
			r.Errorf("one is dead: %+v", got)
		}
		r.ok(r.Reap(r.ctx, dblock.ModePermit, "a", []member.ID{them.Member}))
		if got := r.takePermitsOf(us, contended)[0]; got.Token == 0 {
			r.Errorf("after the dead were ended: %+v", got)
		}
		freed := r.release(permitsBack(asks[2]), permitsBack(theirs), permitsBack(asks[1]))
		if freed[0] != (lease.ReleaseResult{Freed: true}) || freed[1] != (lease.ReleaseResult{}) || freed[2] != (lease.ReleaseResult{Freed: true}) {
			r.Errorf("released %+v", freed)
		}
		stale := us
		stale.Heartbeat = -2
		if got := r.takePermitsOf(stale, permits("a", 1, 5))[0]; got.Token != 0 || !got.MemberGone {
			r.Errorf("on an old beat: %+v", got)
		}
	})
}

// TestPermitsRace has a crowd race for permits, some in batches, among heartbeats: there are never
// more, and none is lost.
func TestPermitsRace(t *testing.T) {
	each(t, races, func(r rig) {
		const limit = 5
		r.ok(r.permits.makeSemaphore(r.ctx, "k", limit))
		var within, most, grants atomic.Int64
		var crowd sync.WaitGroup
		for range 8 {
			us := r.join("one")
			crowd.Go(func() {
				for n := range r.rounds(80) {
					if n%20 == 10 {
						beat, alive, err := r.Heartbeat(r.ctx, us.Member, time.Hour)
						if err != nil || !alive {
							r.Errorf("beat: %v %v", alive, err)
						}
						us.Heartbeat = beat
					}
					asks := []lease.AcquireRequest{permits("k", 1+rand.IntN(3), limit), permits("k", 1, limit)}[:1+n%2]
					got, err := r.permits.acquirePermits(r.ctx, us, asks)
					if r.Classify(err) == sqlerr.Retryable { // a call asks again
						continue
					}
					if err != nil {
						r.Errorf("acquire: %v", err)
						return
					}
					for i, a := range asks {
						if got[i].Token != 0 {
							grants.Add(1)
							now := within.Add(int64(a.Permits))
							for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
							}
						}
					}
					for i, a := range asks {
						if got[i].Token != 0 {
							within.Add(-int64(a.Permits))
							r.giveBack(permitsBack(a))
						}
					}
				}
			})
		}
		crowd.Wait()
		r.Logf("%d grants, %d permits at once", grants.Load(), most.Load())
		if most.Load() > limit || most.Load() < 2 {
			r.Errorf("%d permits at once, of %d", most.Load(), limit)
		}
		if got := r.takePermitsOf(r.join("last"), permits("k", limit, limit))[0]; got.Token == 0 {
			r.Errorf("in the end not all are free: %+v", got)
		}
	})
}

// TestGuardPermits locks one's own permits alone, whatever the transaction has read before, and
// fails if one of them is missing.
func TestGuardPermits(t *testing.T) {
	each(t, plain, func(r rig) {
		us, them := r.join("us"), r.join("them")
		r.ok(r.permits.makeSemaphore(r.ctx, "k", 4))
		begin := func() *sql.Tx {
			tx, err := r.db.BeginTx(r.ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			r.ok(err)
			r.Cleanup(func() { _ = tx.Rollback() })
			return tx
		}
		old := begin()
		var n int
		r.ok(old.QueryRowContext(r.ctx, "SELECT COUNT(*) FROM dblock_permit WHERE handle IS NOT NULL").Scan(&n))
		ours := permits("k", 2, 4)
		fence := dblock.Fence{Key: "k", Token: r.takePermitsOf(us, ours)[0].Token, Handle: ours.Handle, Mode: dblock.ModePermit}
		r.ok(Guards{}.Guard(r.ctx, old, fence))
		r.ok(old.Rollback())

		tx := begin()
		r.ok(Guards{}.Guard(r.ctx, tx, fence))
		theirs := permits("k", 2, 4)
		if got := r.takePermitsOf(them, theirs)[0]; got.Token == 0 {
			r.Errorf("what nobody has, beside a guard: %+v", got)
		}
		if got := r.release(permitsBack(ours))[0]; got != (lease.ReleaseResult{Held: true}) {
			r.Errorf("released below a guard: %+v", got)
		}
		if got := r.release(permitsBack(theirs))[0]; !got.Freed {
			r.Errorf("those of others, beside a guard: %+v", got)
		}
		if err := (Guards{}).AdvanceFence(r.ctx, tx, fence, "elsewhere"); !errors.Is(err, dblock.ErrUnsupported) {
			r.Errorf("raised: %v", err)
		}
		r.ok(tx.Rollback())

		r.exec("UPDATE dblock_permit SET handle = NULL WHERE slot = 2")
		if err := (Guards{}).Guard(r.ctx, begin(), fence); !errors.Is(err, dblock.ErrFenced) {
			r.Errorf("one of two permits is gone: %v", err)
		}
	})
}
