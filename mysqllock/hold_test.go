package mysqllock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// over is an ask for what a member held that is gone.
func over(key string, gone member.ID) lease.AcquireRequest {
	a := ask(key)
	a.Label, a.DeadMember = "taken over", gone
	return a
}

func TestTakeOver(t *testing.T) {
	each(t, plain, func(r rig) {
		us, them := r.join("us"), r.join("them")
		old := r.take(them, ask("k"))
		if gone, err := r.Evict(r.ctx, them.Member); err != nil || gone {
			r.Fatalf("the living was evicted: %v", err)
		}
		r.kill(them)
		if got := r.acquire(us, ask("k"))[0]; !got.Held || !got.Holder.Dead || got.Holder.Member != them.Member || got.Holder.Remaining != 0 {
			r.Fatalf("a dead holder: %+v", got)
		}
		for range 2 {
			if gone, err := r.Evict(r.ctx, them.Member); err != nil || !gone {
				r.Fatalf("the dead was not evicted: %v", err)
			}
		}
		if got := r.acquire(us, ask("k"))[0]; !got.Held || !got.Holder.Dead {
			r.Fatalf("an evicted holder: %+v", got)
		}
		stale := us
		stale.Heartbeat = -2
		if got := r.acquire(stale, over("k", them.Member))[0]; got.Token != 0 {
			r.Errorf("taken over on an old beat: %+v", got)
		}
		if back := r.take(us, over("k", them.Member)); back.Token <= old.Token {
			r.Fatalf("token %d after %d", back.Token, old.Token)
		}
		if got := r.acquire(us, over("k", them.Member))[0]; got.Token != 0 {
			r.Errorf("taken over twice: %+v", got)
		}
		if got := r.release(old); got[0] != (lease.ReleaseResult{}) {
			r.Errorf("the dead one released it: %+v", got)
		}
		r.ok(r.Deregister(r.ctx, us.Member))
		third := r.join("third")
		for _, got := range r.acquire(third, over("k", us.Member), ask("fresh")) { // in a batch
			if got.Token == 0 {
				r.Errorf("not taken over from one that left: %+v", got)
			}
		}
	})
}

func TestGuard(t *testing.T) {
	each(t, settings, func(r rig) {
		us := r.join("us")
		back := r.take(us, ask("k"))
		free := r.take(us, ask("free"))
		fence := dblock.Fence{Key: "k", Token: back.Token, Handle: back.Handle}
		tx, err := r.db.BeginTx(r.ctx, nil)
		r.ok(err)
		defer func() { _ = tx.Rollback() }()
		r.ok((Guards{}).Guard(r.ctx, tx, fence))
		began := time.Now()
		if got := r.release(back, free); got[0] != (lease.ReleaseResult{Held: true}) || got[1] != (lease.ReleaseResult{Freed: true}) {
			r.Errorf("released under a guard: %+v", got)
		}
		if got := r.release(back); got[0] != (lease.ReleaseResult{Held: true}) {
			r.Errorf("released under a guard: %+v", got)
		}
		if _, err := r.ExpireIn(r.ctx, []lease.ReleaseRequest{back}, time.Hour); r.Classify(err) != sqlerr.Busy {
			r.Errorf("ended under a guard: %v", err)
		}
		if got := r.acquire(us, ask("k"))[0]; !got.Held {
			r.Errorf("acquired under a guard: %+v", got)
		}
		r.kill(us)
		them := r.join("them")
		if got := r.acquire(them, over("k", us.Member))[0]; got.Token != 0 {
			r.Errorf("taken over under a guard: %+v", got)
		}
		if took := time.Since(began); took > 30*time.Second {
			r.Errorf("something waited for the guard: %v", took)
		}
		r.ok(tx.Commit())
		if got := r.release(back); !got[0].Freed {
			r.Errorf("not released after the guard: %+v", got)
		}
		tx2, err := r.db.BeginTx(r.ctx, nil)
		r.ok(err)
		defer func() { _ = tx2.Rollback() }()
		if err := (Guards{}).Guard(r.ctx, tx2, fence); !errors.Is(err, dblock.ErrFenced) {
			r.Errorf("the guard of a lease that was given back: %v", err)
		}
	})
}

func TestHolds(t *testing.T) {
	each(t, settings, func(r rig) {
		us, them := r.join("us"), r.join("them")
		long, short := ask("detached for long"), ask("detached")
		long.Hold, long.Detached = time.Hour, true
		short.Hold, short.Detached = 300*time.Millisecond, true
		r.take(us, long)
		r.take(us, short)
		r.ok(r.Deregister(r.ctx, us.Member))
		got := r.acquire(them, ask("detached for long"))[0]
		if !got.Held || got.Holder.Dead || got.Holder.Member != (member.ID{}) || got.Holder.Remaining <= 0 || got.Holder.Remaining > long.Hold {
			r.Errorf("refused with %+v", got)
		}
		time.Sleep(short.Hold)
		r.take(them, ask("detached"))

		back := r.take(them, ask("k"))
		if ours, err := r.ExpireIn(r.ctx, []lease.ReleaseRequest{back}, 2*time.Hour); err != nil || !ours {
			r.Errorf("ExpireIn: %v, %v", ours, err)
		}
		if got := r.acquire(them, ask("k"))[0]; !got.Held || got.Holder.Remaining > time.Hour {
			r.Errorf("the heartbeat's end comes first: %+v", got)
		}
		if ours, err := r.ExpireIn(r.ctx, []lease.ReleaseRequest{back}, time.Millisecond); err != nil || !ours {
			r.Errorf("ExpireIn: %v, %v", ours, err)
		}
		time.Sleep(20 * time.Millisecond)
		if ours, err := r.ExpireIn(r.ctx, []lease.ReleaseRequest{back}, time.Hour); err != nil || ours {
			r.Errorf("ExpireIn of what has ended: %v, %v", ours, err)
		}
		r.take(them, ask("k"))
		if got := r.release(back); got[0] != (lease.ReleaseResult{}) {
			r.Errorf("released what somebody else has: %+v", got)
		}
	})
}

func TestSweep(t *testing.T) {
	each(t, settings, func(r rig) {
		us, dead := r.join("us"), r.join("dead")
		r.take(us, ask("held"))
		r.take(dead, ask("of the dead"))
		r.take(dead, ask("of the expired"))
		ended := ask("ended")
		ended.Hold, ended.Detached = time.Millisecond, true
		r.take(us, ended)
		var asks []lease.AcquireRequest
		var backs []lease.ReleaseRequest
		for i := range 450 {
			asks = append(asks, ask(fmt.Sprint("free ", i)))
		}
		for i, a := range r.acquire(us, asks...) {
			backs = append(backs, lease.ReleaseRequest{Key: asks[i].Key, Token: a.Token, Handle: asks[i].Handle})
		}
		for _, got := range r.release(backs...) {
			if !got.Freed {
				r.Fatalf("not released: %+v", got)
			}
		}
		r.exec("UPDATE dblock_lease SET changed_at = TIMESTAMPADD(MINUTE, -70, UTC_TIMESTAMP(6))")
		r.release(r.take(us, ask("fresh")))
		r.ok(r.Wait(r.ctx, []string{"held"}, us.Member, time.Hour))
		r.ok(r.Wait(r.ctx, []string{"held"}, us.Member, time.Hour))
		r.ok(r.Wait(r.ctx, []string{"held"}, dead.Member, time.Microsecond))
		r.ok(r.Wait(r.ctx, []string{"stopped"}, us.Member, time.Hour))
		r.ok(r.Wait(r.ctx, []string{"stopped"}, us.Member, 0))
		expired := r.join("expired")
		r.exec("UPDATE dblock_lease SET member_id = ? WHERE lease_key = 'of the expired'", expired.Member[:])
		r.kill(expired)
		r.ok(r.Deregister(r.ctx, dead.Member))
		time.Sleep(5 * time.Millisecond)
		// 450 free, one ended, one of the dead, a member and a waiter.
		if n, err := r.Sweep(r.ctx, time.Hour); err != nil || n != 454 {
			r.Errorf("swept %d, %v", n, err)
		}
		// What the expired member had is seen to be unused now.
		if n, err := r.Sweep(r.ctx, time.Hour); err != nil || n != 1 {
			r.Errorf("then swept %d, %v", n, err)
		}
		var left int
		r.ok(r.db.QueryRow("SELECT COUNT(*) FROM dblock_lease WHERE lease_key IN ('held', 'fresh')").Scan(&left))
		listed, err := r.List(r.ctx, "")
		r.ok(err)
		if left != 2 || len(listed) != 1 || listed[0].Waiters != 1 {
			r.Errorf("%d rows left, listed %+v", left, listed)
		}
	})
}
