package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"github.com/dblock-go/dblock/internal/devdb"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestRace has a crowd race for few keys, some of them in batches, while a sweeper and the
// heartbeats go on: no two callers hold a key at once, tokens grow, and nothing fails.
func TestRace(t *testing.T) {
	each(t, races, func(r rig) {
		var holders, last [4]atomic.Int64
		var grants, stood atomic.Int64
		var crowd sync.WaitGroup
		fail := func(format string, args ...any) { r.Errorf(format, args...) }
		for range 16 {
			us := r.join("racer")
			crowd.Go(func() {
				for n := range r.rounds(160) {
					if n%20 == 10 {
						beat, alive, err := r.Heartbeat(r.ctx, us.Member, time.Hour)
						if err != nil || !alive {
							fail("beat: %v %v", alive, err)
						}
						us.Heartbeat = beat
					}
					keys := rand.Perm(4)[:1+n%2]
					asks := make([]lease.AcquireRequest, len(keys))
					for i, k := range keys {
						asks[i] = ask(fmt.Sprint(k))
					}
					got, err := r.leases.acquireExclusive(r.ctx, us, asks)
					if err != nil {
						fail("acquire: %v", err)
						return
					}
					var backs []lease.ReleaseRequest
					for i, k := range keys {
						if got[i].Token == 0 {
							continue
						}
						grants.Add(1)
						if holders[k].Add(1) != 1 {
							fail("two hold %d", k)
						}
						if before := last[k].Swap(got[i].Token); before >= got[i].Token {
							fail("the token of %d went from %d to %d", k, before, got[i].Token)
						}
						backs = append(backs, lease.ReleaseRequest{Key: asks[i].Key, Token: got[i].Token, Handle: asks[i].Handle})
					}
					for _, k := range keys {
						if slices.ContainsFunc(backs, func(b lease.ReleaseRequest) bool { return b.Key == fmt.Sprint(k) }) {
							holders[k].Add(-1)
						}
					}
					for len(backs) > 0 {
						got, err := r.releaseBatch(backs)
						if err != nil {
							fail("release: %v", err)
							return
						}
						var left []lease.ReleaseRequest
						for i, b := range backs {
							if got[i].Held {
								stood.Add(1)
								left = append(left, b)
							} else if !got[i].Freed {
								fail("not ours: %v", b)
							}
						}
						backs = left
					}
				}
			})
		}
		crowd.Wait()
		r.Logf("%d grants, %d releases stood", grants.Load(), stood.Load())
	})
}

// TestFreshKeys has pairs race for keys that were never locked before.
func TestFreshKeys(t *testing.T) {
	each(t, races, func(r rig) {
		var crowd sync.WaitGroup
		granted := make([]atomic.Int64, r.rounds(200))
		for range 8 {
			us := r.join("racer")
			crowd.Go(func() {
				for n := range granted {
					got, err := r.leases.acquireExclusive(r.ctx, us, []lease.AcquireRequest{ask(fmt.Sprint("fresh ", n))})
					if err != nil {
						r.Errorf("acquire: %v", err)
						return
					}
					if got[0].Token != 0 {
						granted[n].Add(1)
					}
				}
			})
		}
		crowd.Wait()
		for n := range granted {
			if granted[n].Load() != 1 {
				r.Errorf("%d was granted %d times", n, granted[n].Load())
			}
		}
	})
}

// TestAHeartbeatComesThrough has every connection but one busy.
func TestAHeartbeatComesThrough(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		r.db.SetMaxOpenConns(2)
		busy, err := r.db.Conn(r.ctx)
		r.ok(err)
		defer busy.Close()
		ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
		defer cancel()
		if _, alive, err := r.Heartbeat(ctx, us.Member, time.Hour); err != nil || !alive {
			r.Errorf("beat: %v, %v", alive, err)
		}
		short, cancel := context.WithTimeout(r.ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := r.leases.acquireExclusive(short, us, []lease.AcquireRequest{ask("k")}); r.Classify(err) != sqlerr.Busy {
			r.Errorf("no connection: %v", err)
		}
		// A connection that broke is made anew.
		others, err := mysql.ShowOf(r.ctx, busy, "SELECT ID AS pid FROM "+devdb.Processlist+" WHERE DB = DATABASE() AND ID <> CONNECTION_ID()")
		r.ok(err)
		if len(others) == 0 {
			r.Fatal("heartbeats have no connection")
		}
		for _, other := range others {
			_, err = busy.ExecContext(r.ctx, "KILL "+other["pid"])
			r.ok(err)
		}
		time.Sleep(100 * time.Millisecond)
		for try := 1; ; try++ {
			_, alive, err := r.Heartbeat(ctx, us.Member, time.Hour)
			if err == nil && alive {
				break
			}
			if try == 2 {
				r.Fatalf("beat after its connection was killed: %v, %v", alive, err)
			}
		}
	})
}

func TestListenIsNotToBeHad(t *testing.T) {
	each(t, plain, func(r rig) {
		if err := r.Listen(r.ctx, func() {}, func(string) {}); !errors.Is(err, dblock.ErrUnsupported) {
			r.Errorf("got %v", err)
		}
	})
}

// TestHeartbeatsAmongAcquires has one process acquire and release at full speed while it sends
// heartbeats without a pause: the statements read the member's row under a shared lock, and none
// may fail by that, or hold a heartbeat up.
func TestHeartbeatsAmongAcquires(t *testing.T) {
	each(t, races, func(r rig) {
		us := r.join("us")
		var beat atomic.Int64
		var crowd sync.WaitGroup
		for g := range 16 {
			crowd.Go(func() {
				for n := range r.rounds(60) {
					a := ask(fmt.Sprint(g%8, " ", n%3))
					got, err := r.leases.acquireExclusive(r.ctx, lease.By{Member: us.Member, Heartbeat: beat.Load() + 1000}, []lease.AcquireRequest{a})
					if err != nil {
						r.Errorf("acquire: %v", err)
						return
					}
					if got[0].Token != 0 {
						back := lease.ReleaseRequest{Key: a.Key, Token: got[0].Token, Handle: a.Handle}
						for stood := true; stood; {
							got, err := r.releaseBatch([]lease.ReleaseRequest{back})
							if err != nil || !got[0].Freed && !got[0].Held {
								r.Errorf("release: %+v, %v", got, err)
								return
							}
							stood = got[0].Held
						}
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { crowd.Wait(); close(done) }()
		var longest time.Duration
		for running := true; running; {
			began := time.Now()
			n, alive, err := r.Heartbeat(r.ctx, us.Member, time.Hour)
			if err != nil || !alive {
				r.Fatalf("beat: %v, %v", alive, err)
			}
			beat.Store(n)
			longest = max(longest, time.Since(began))
			select {
			case <-done:
				running = false
			default:
			}
		}
		r.Logf("%d beats, the longest took %v", beat.Load(), longest)
		if longest > 30*time.Second {
			r.Errorf("a heartbeat took %v", longest)
		}
	})
}
