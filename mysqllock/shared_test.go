package mysqllock

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// enterShared asks for a batch as readers.
func (r rig) enterShared(by lease.By, asks ...lease.AcquireRequest) []lease.AcquireResult {
	r.Helper()
	answers, err := r.readers.acquireShared(r.ctx, by, asks)
	r.ok(err)
	return answers
}

// write takes a key for itself, after its readers have gone; false if the key is held. looks is
// whether it looks for them.
func (r rig) write(by lease.By, key string, looks bool) (lease.ReleaseRequest, bool) {
	a := ask(key)
	got, err := r.leases.acquireExclusive(r.ctx, by, []lease.AcquireRequest{a})
	if err == nil && got[0].Shared {
		a.DespiteReaders = true
		got, err = r.leases.acquireExclusive(r.ctx, by, []lease.AcquireRequest{a})
	}
	if err != nil {
		r.Errorf("write: %v", err)
	}
	if err != nil || got[0].Token == 0 {
		return lease.ReleaseRequest{}, false
	}
	if !a.DespiteReaders || !looks {
		return lease.ReleaseRequest{Key: key, Handle: a.Handle}, true
	}
	for {
		readers, err := r.Readers(r.ctx, key)
		if err != nil {
			r.Errorf("readers: %v", err)
			return lease.ReleaseRequest{}, false
		}
		if len(readers) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	held := ask(key)
	held.Instead = a.Handle
	for {
		got, err := r.leases.acquireExclusive(r.ctx, by, []lease.AcquireRequest{held})
		if err != nil {
			r.Errorf("write: %v", err)
			return lease.ReleaseRequest{}, false
		}
		if got[0].Token != 0 { // else its row was locked for a moment
			return lease.ReleaseRequest{Key: key, Handle: held.Handle}, true
		}
	}
}

// giveBack does so until it is done.
func (r rig) giveBack(b lease.ReleaseRequest) {
	for {
		got, err := r.releaseBatch([]lease.ReleaseRequest{b})
		if err != nil || !got[0].Freed && !got[0].Held {
			r.Errorf("release: %+v, %v", got, err)
			return
		}
		if got[0].Freed {
			return
		}
	}
}

// meetings has readers and writers come and go, among heartbeats, and counts how often a writer was
// not alone. They go on until both have had the lock.
func (r rig) meetings(rounds int, looks bool) (met, reads, writes int64) {
	var within, meet, read, wrote atomic.Int64 // a reader counts one within, a writer a thousand
	var crowd sync.WaitGroup
	be := func(weight int64) {
		if now := within.Add(weight); now != weight && (now >= 2000 || now > 1000 || weight > 1) {
			meet.Add(1)
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
		within.Add(-weight)
	}
	for i := range 8 {
		us := r.join("one")
		crowd.Go(func() {
			for n := 0; n < rounds || n < 100*rounds && (read.Load() == 0 || wrote.Load() == 0); n++ {
				if n%20 == 10 {
					beat, alive, err := r.Heartbeat(r.ctx, us.Member, time.Hour)
					if err != nil || !alive {
						r.Errorf("beat: %v %v", alive, err)
					}
					us.Heartbeat = beat
				}
				if i < 2 {
					if b, is := r.write(us, "k", looks); is {
						wrote.Add(1)
						be(1000)
						r.giveBack(b)
					}
					continue
				}
				a := ask("k")
				got, err := r.readers.acquireShared(r.ctx, us, []lease.AcquireRequest{a})
				if err != nil {
					r.Errorf("read: %v", err)
					return
				}
				if got[0].Token != 0 {
					read.Add(1)
					be(1)
					r.giveBack(lease.ReleaseRequest{Key: "k", Handle: a.Handle, Mode: dblock.ModeShared})
				}
			}
		})
	}
	crowd.Wait()
	return meet.Load(), read.Load(), wrote.Load()
}

func TestReadersNeverMeetWriters(t *testing.T) {
	each(t, races, func(r rig) {
		met, reads, writes := r.meetings(r.rounds(120), true)
		r.Logf("%d reads, %d writes", reads, writes)
		if met != 0 || reads == 0 || writes == 0 {
			r.Errorf("%d meetings in %d reads and %d writes", met, reads, writes)
		}
	})
}

// The control is a writer that does not look for readers.
func TestControlReadersMeetWriters(t *testing.T) {
	each(t, plain, func(r rig) {
		met := int64(0)
		for n := 0; n < 20 && met == 0; n++ {
			met, _, _ = r.meetings(60, false)
		}
		if met == 0 {
			r.Error("nobody met: the test shows nothing")
		}
	})
}

// TestSharedBatch has one batch with keys that are open, fresh, free and held, and one of them
// twice.
func TestSharedBatch(t *testing.T) {
	each(t, settings, func(r rig) {
		us, them := r.join("us"), r.join("them")
		open := r.enterShared(them, ask("open"))[0]
		held := r.take(them, ask("held"))
		free := r.take(them, ask("free"))
		r.release(free)
		asks := []lease.AcquireRequest{ask("open"), ask("fresh"), ask("free"), ask("held"), ask("open"), ask("fresh")}
		asks[0].Detached, asks[0].Hold = true, time.Hour
		asks[1].Label, asks[1].Data = "l'abel", []byte("da\x00ta")
		got := r.enterShared(us, asks...)
		if open.Token == 0 || got[0].Token != open.Token || got[4].Token != open.Token {
			r.Errorf("what was open: %+v, %+v, %+v", open, got[0], got[4])
		}
		if got[1].Token == 0 || got[5].Token != got[1].Token || got[2].Token <= free.Token {
			r.Errorf("what was free: %+v", got)
		}
		if got[3].Token != 0 || !got[3].Held || got[3].Holder.Member != them.Member || got[3].Holder.Token != held.Token {
			r.Errorf("what was held: %+v", got[3])
		}
		listed, err := r.List(r.ctx, "")
		r.ok(err)
		at := slices.IndexFunc(listed, func(l lease.HeldLease) bool { return l.Handle == asks[1].Handle })
		if len(listed) != 7 || at < 0 || listed[at].Mode != dblock.ModeShared || listed[at].Holder.Label != "l'abel" || listed[at].MemberLabel != "us" {
			r.Errorf("listed %+v", listed)
		}
		back := func(i int) lease.ReleaseRequest {
			return lease.ReleaseRequest{Key: asks[i].Key, Token: got[i].Token, Handle: asks[i].Handle, Mode: dblock.ModeShared}
		}
		freed := r.release(back(0), back(1), back(2), back(3), back(4), back(5))
		if !freed[0].Freed || !freed[1].Freed || !freed[2].Freed || !freed[4].Freed || !freed[5].Freed {
			r.Errorf("released %+v", freed)
		}
		if freed := r.release(back(1)); freed[0] != (lease.ReleaseResult{}) {
			r.Errorf("released twice: %+v", freed)
		}
		polls := []lease.AcquireRequest{ask("open"), ask("held"), ask("other")}
		for i := range polls {
			polls[i].Contended = true
		}
		alone := ask("open")
		alone.Contended = true
		if got := r.enterShared(us, alone); got[0].Token == 0 {
			r.Errorf("polled alone: %+v", got)
		}
		if got := r.enterShared(us, polls...); got[0].Token == 0 || !got[1].Held || got[2].Token == 0 {
			r.Errorf("polled: %+v", got)
		}
		old := us
		old.Heartbeat = -2
		for _, key := range []string{"open", "never"} {
			if got := r.enterShared(old, ask(key))[0]; got.Token != 0 {
				r.Errorf("on an old beat: %+v", got)
			}
		}
	})
}

// TestOverInABatch asks over readers beside others, whose errors name the readers.
func TestOverInABatch(t *testing.T) {
	each(t, plain, func(r rig) {
		us, them := r.join("us"), r.join("them")
		r.enterShared(them, ask("a"), ask("b"))
		asks := []lease.AcquireRequest{ask("a"), ask("b"), ask("c")}
		asks[1].DespiteReaders = true
		got := r.acquire(us, asks...)
		if !got[0].Shared || got[0].Held || got[0].Token != 0 || got[1].Token == 0 || got[2].Token == 0 {
			r.Fatalf("over one of two that are shared: %+v", got)
		}
		if late := r.enterShared(them, ask("b"))[0]; !late.Held || late.Holder.Token != got[1].Token {
			r.Errorf("a reader beside a writer that waits: %+v", late)
		}
		contended := ask("a")
		contended.Contended = true
		if got := r.acquire(us, contended)[0]; !got.Shared || got.Held {
			r.Errorf("a poll of what is shared: %+v", got)
		}
		// What was granted over readers and is released leaves them there.
		r.release(lease.ReleaseRequest{Key: "b", Handle: asks[1].Handle})
		if got := r.acquire(us, ask("b"))[0]; !got.Shared {
			r.Errorf("after a writer gave up: %+v", got)
		}
		// So does one that died, and the alike of a batch find none of them free.
		again := ask("b")
		again.DespiteReaders = true
		r.take(us, again)
		r.kill(us)
		if gone, err := r.Evict(r.ctx, us.Member); err != nil || !gone {
			r.Fatalf("evict: %v, %v", gone, err)
		}
		heirs := []lease.AcquireRequest{over("b", us.Member), over("c", us.Member), ask("a")}
		got = r.acquire(them, heirs...)
		if !got[0].Shared || got[1].Token == 0 || !got[2].Shared {
			r.Errorf("after a writer that waited died: %+v", got)
		}
	})
}

// TestReadersStandBack for as long as a writer has asked for it.
func TestReadersStandBack(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		r.enterShared(us, ask("k"))
		r.ok(r.Wait(r.ctx, []string{"k"}, member.ID{}, time.Hour))
		if got := r.enterShared(us, ask("k"))[0]; got.Token != 0 || got.Held {
			r.Errorf("while a writer wants to go first: %+v", got)
		}
		r.ok(r.Wait(r.ctx, []string{"k"}, member.ID{}, 0))
		if got := r.enterShared(us, ask("k"))[0]; got.Token == 0 {
			r.Errorf("after it has gone: %+v", got)
		}
	})
}

// TestReap ends what the dead hold, and leaves what is locked.
func TestReap(t *testing.T) {
	each(t, plain, func(r rig) {
		us, them := r.join("us"), r.join("them")
		first, second := ask("k"), ask("k")
		ends := ask("k")
		ends.Hold = time.Microsecond
		r.enterShared(them, first, second)
		r.enterShared(us, ask("k"), ends)
		tx, err := r.db.BeginTx(r.ctx, nil)
		r.ok(err)
		defer func() { _ = tx.Rollback() }()
		fence := dblock.Fence{Key: "k", Token: r.enterShared(us, ask("k"))[0].Token, Handle: second.Handle, Mode: dblock.ModeShared}
		r.ok(Guards{}.Guard(r.ctx, tx, fence))
		count := func(want int) {
			r.Helper()
			r.ok(r.Reap(r.ctx, dblock.ModeShared, "k", []member.ID{them.Member}))
			readers, err := r.Readers(r.ctx, "k")
			r.ok(err)
			if len(readers) != want {
				r.Errorf("%d readers, want %d", len(readers), want)
			}
		}
		count(3)
		if got := r.release(lease.ReleaseRequest{Key: "k", Handle: second.Handle, Mode: dblock.ModeShared})[0]; got != (lease.ReleaseResult{Held: true}) {
			r.Errorf("released below a guard: %+v", got)
		}
		r.ok(tx.Rollback())
		count(2)
	})
}

// TestSweepAmongReaders sweeps all the time, as if the key had been unused for long whenever it has
// no exclusive holder.
func TestSweepAmongReaders(t *testing.T) {
	each(t, races, func(r rig) {
		done := make(chan struct{})
		var sweeper sync.WaitGroup
		var swept atomic.Int64
		sweeper.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := r.db.ExecContext(r.ctx, "UPDATE dblock_lease SET changed_at = '2000-01-01' WHERE lease_key = 'k' AND handle IS NULL"); err != nil {
					r.Errorf("age: %v", err)
				}
				n, err := r.Sweep(r.ctx, time.Hour)
				if err != nil {
					r.Errorf("sweep: %v", err)
				}
				swept.Add(n)
			}
		})
		met, reads, writes := r.meetings(r.rounds(80), true)
		close(done)
		sweeper.Wait()
		r.Logf("%d reads, %d writes, swept %d times", reads, writes, swept.Load())
		if met != 0 || reads == 0 || writes == 0 {
			r.Errorf("%d meetings in %d reads and %d writes", met, reads, writes)
		}
	})
}

// TestAnInterruptedSweepKeepsNoKey: a sweep fails after it has made itself the holder of a key that
// was shared once. Others acquire the key at once, in both modes.
func TestAnInterruptedSweepKeepsNoKey(t *testing.T) {
	each(t, settings, func(r rig) {
		us := r.join("us")
		read := func(a lease.AcquireRequest) {
			r.giveBack(lease.ReleaseRequest{Key: a.Key, Token: r.enterShared(us, a)[0].Token, Handle: a.Handle, Mode: dblock.ModeShared})
		}
		for _, acquire := range []func(){
			func() { read(ask("k")) },
			func() {
				if _, written := r.write(us, "k", true); !written {
					r.Errorf("nobody holds the key, and it is not granted")
				}
			},
		} {
			read(ask("k"))
			r.exec("UPDATE dblock_lease SET changed_at = '2000-01-01'")
			r.exec("CREATE TRIGGER interrupted AFTER DELETE ON dblock_lease FOR EACH ROW SIGNAL SQLSTATE '45000'")
			if n, err := r.Sweep(r.ctx, time.Hour); err == nil {
				r.Errorf("the sweep was not interrupted: %d", n)
			}
			r.exec("DROP TRIGGER interrupted")
			acquire()
		}
	})
}
