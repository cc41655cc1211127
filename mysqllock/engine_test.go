package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// rig is an engine on a migrated database of its own.
type rig struct {
	*testing.T
	*engine
	db  *sql.DB
	ctx context.Context
}

// each runs a test on every server under test, once for each of the settings of its connections.
func each(t *testing.T, settings map[string]string, test func(rig)) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			for name, params := range settings {
				if kind == devdb.MySQL && strings.Contains(params, "snapshot_isolation") {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(newRig(t, testdb.DSN(t, kind), variables(kind, params)))
				})
			}
		})
	}
}

var plain = map[string]string{"plain": ""}

// settings are those of a DSN that could make a difference.
var settings = map[string]string{
	"plain":             "",
	"clientFoundRows":   "clientFoundRows=true",
	"parseTime":         "parseTime=true&loc=Local",
	"interpolateParams": "interpolateParams=true",
	"sql_mode":          "sql_mode=%27ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,STRICT_ALL_TABLES%27",
	"lax":               "sql_mode=%27%27",
	"time_zone":         "time_zone=%27%2B05:45%27",
	"collation":         "collation=latin1_swedish_ci",
	"read committed":    isolation + "=%27READ-COMMITTED%27",
	"serializable":      isolation + "=%27SERIALIZABLE%27",
	"snapshots":         "innodb_snapshot_isolation=ON", // MariaDB alone
}

// races are the settings that matter to who waits for whom.
var races = map[string]string{
	"plain":           "",
	"clientFoundRows": "clientFoundRows=true",
	"read committed":  isolation + "=%27READ-COMMITTED%27",
	"serializable":    isolation + "=%27SERIALIZABLE%27",
	"snapshots":       "innodb_snapshot_isolation=ON", // MariaDB alone
}

// isolation stands for the variable's name, which is not the same on both.
const isolation = "ISOLATION"

func variables(kind devdb.Kind, params string) string {
	if kind == devdb.MySQL {
		return strings.ReplaceAll(params, isolation, "transaction_isolation")
	}
	return strings.ReplaceAll(params, isolation, "tx_isolation")
}

func newRig(t *testing.T, dsn, params string) rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	db := openDB(t, dsn+"?"+params)
	if _, err := migrations.Up(ctx, db, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	e := newEngine(db, "")
	t.Cleanup(e.close)
	if err := e.check(ctx); err != nil {
		t.Fatal(err)
	}
	return rig{t, e, db, ctx}
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(32)
	db.SetMaxIdleConns(32)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (r rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r rig) exec(query string, args ...any) {
	r.Helper()
	_, err := r.db.ExecContext(r.ctx, query, args...)
	r.ok(err)
}

func (r rig) join(label string) lease.By {
	r.Helper()
	by := lease.By{Member: member.NewID()}
	r.ok(r.Join(r.ctx, by.Member, label, time.Hour))
	return by
}

func (r rig) acquire(by lease.By, asks ...lease.Ask) []lease.Answer {
	r.Helper()
	answers, err := r.Acquire(r.ctx, by, asks)
	r.ok(err)
	return answers
}

// take acquires one key, and expects to get it.
func (r rig) take(by lease.By, a lease.Ask) lease.Back {
	r.Helper()
	got := r.acquire(by, a)[0]
	if got.Token == 0 {
		r.Fatalf("%q was not granted: %+v", a.Key, got)
	}
	return lease.Back{Key: a.Key, Token: got.Token, Handle: a.Handle}
}

func (r rig) release(backs ...lease.Back) []lease.Returned {
	r.Helper()
	got, err := r.Release(r.ctx, backs)
	r.ok(err)
	return got
}

// kill has a member expire an hour and a bit ago.
func (r rig) kill(by lease.By) {
	r.Helper()
	r.exec("UPDATE dblock_member SET expires_at = TIMESTAMPADD(MINUTE, -70, UTC_TIMESTAMP(6)) WHERE member_id = ?", by.Member[:])
}

func ask(key string) lease.Ask { return lease.Ask{Key: key, Handle: member.NewID()} }

func TestGrantRefuseRelease(t *testing.T) {
	each(t, settings, func(r rig) {
		us, them := r.join("us"), r.join("them")
		a := ask("k")
		a.Label, a.Data = "l'abel", []byte("da\x00ta")
		before := time.Now().Add(-time.Minute).UnixMicro()
		back := r.take(us, a)
		if back.Token < before || back.Token > time.Now().Add(time.Minute).UnixMicro() {
			r.Errorf("the token %d is not the clock's", back.Token)
		}
		got := r.acquire(them, ask("k"))[0]
		left := got.Holder.Remaining
		got.Holder.Remaining = 0
		want := lease.Answer{Held: true, Holder: lease.Holder{Member: us.Member, Label: "l'abel", Token: back.Token}}
		if got != want {
			r.Errorf("refused with %+v, want %+v", got, want)
		}
		if left < 59*time.Minute || left > time.Hour {
			r.Errorf("remaining %v of an hour", left)
		}
		listed, err := r.List(r.ctx)
		r.ok(err)
		if len(listed) != 1 || listed[0].Key != "k" || listed[0].Handle != a.Handle || listed[0].MemberLabel != "us" || listed[0].Age > time.Minute {
			r.Errorf("listed %+v", listed)
		}
		wrong := back
		wrong.Token--
		if got := r.release(wrong); got[0] != (lease.Returned{}) {
			r.Errorf("released with a wrong token: %+v", got)
		}
		if got := r.release(back); got[0] != (lease.Returned{Freed: true}) {
			r.Errorf("released: %+v", got)
		}
		if got := r.release(back); got[0] != (lease.Returned{}) {
			r.Errorf("released twice: %+v", got)
		}
		r.exec("UPDATE dblock_lease SET token = token + 3600000000")
		again := r.take(them, ask("k"))
		if again.Token != back.Token+3600000001 {
			r.Errorf("the token went from %d to %d", back.Token+3600000000, again.Token)
		}
		again.Token = 0
		if got := r.release(again); !got[0].Freed {
			r.Errorf("released with any token: %+v", got)
		}
	})
}

func TestBatch(t *testing.T) {
	each(t, settings, func(r rig) {
		us, them := r.join("us"), r.join("them")
		held := r.take(them, ask("b"))
		free := r.take(them, ask("d"))
		r.release(free)
		asks := []lease.Ask{ask("e"), ask("b"), ask("d"), ask("a")}
		asks[0].Detached, asks[0].Hold = true, time.Hour
		asks[2].Label, asks[2].Data = "d", make([]byte, 64<<10)
		got := r.acquire(us, asks...)
		if got[0].Token == 0 || got[2].Token <= free.Token || got[3].Token == 0 {
			r.Errorf("what was free was not granted: %+v", got)
		}
		if got[1].Token != 0 || !got[1].Held || got[1].Holder.Token != held.Token || got[1].Holder.Member != them.Member {
			r.Errorf("what was held: %+v", got[1])
		}
		var data int
		r.ok(r.db.QueryRow("SELECT LENGTH(data) FROM dblock_lease WHERE lease_key = 'd' AND label = 'd'").Scan(&data))
		if data != 64<<10 {
			r.Errorf("%d bytes of data", data)
		}
		back := func(i int) lease.Back {
			return lease.Back{Key: asks[i].Key, Token: got[i].Token, Handle: asks[i].Handle}
		}
		freed := r.release(back(0), lease.Back{Key: "b", Handle: asks[1].Handle}, back(3))
		want := []lease.Returned{{Freed: true}, {}, {Freed: true}}
		if !slices.Equal(freed, want) {
			r.Errorf("released %+v, want %+v", freed, want)
		}
		if freed := r.release(back(2), held); !freed[0].Freed || !freed[1].Freed {
			r.Errorf("released %+v", freed)
		}
	})
}

func TestABeatTooOldGrantsNothing(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		for n := int64(1); n <= 2; n++ {
			beat, alive, err := r.Beat(r.ctx, us.Member, time.Hour)
			r.ok(err)
			if beat != n || !alive {
				r.Fatalf("beat %d, alive %v", beat, alive)
			}
		}
		for _, key := range []string{"k", "k"} { // the second time there is a row
			if got := r.acquire(us, ask(key))[0]; got != (lease.Answer{MemberGone: true}) {
				r.Errorf("after two beats more: %+v", got)
			}
		}
		us.Beat = 1
		r.take(us, ask("k"))
		us.Beat = 2
		r.kill(us)
		if got := r.acquire(us, ask("other"))[0]; got != (lease.Answer{MemberGone: true}) {
			r.Errorf("after it expired: %+v", got)
		}
		if _, alive, err := r.Beat(r.ctx, us.Member, time.Hour); err != nil || alive {
			r.Errorf("a heartbeat revived it: %v %v", alive, err)
		}
		if _, alive, err := r.Beat(r.ctx, member.NewID(), time.Hour); err != nil || alive {
			r.Errorf("a heartbeat of nobody: %v %v", alive, err)
		}
	})
}

func TestTakeOver(t *testing.T) {
	each(t, plain, func(r rig) {
		us, them := r.join("us"), r.join("them")
		old := r.take(them, ask("k"))
		a := ask("k")
		a.Label = "taken over"
		token, err := r.TakeOver(r.ctx, us, a, them.Member)
		r.ok(err)
		if token != 0 {
			r.Fatalf("taken from the living: %d", token)
		}
		r.kill(them)
		if got := r.acquire(us, a)[0]; !got.Held || !got.Holder.Dead || got.Holder.Member != them.Member || got.Holder.Remaining != 0 {
			r.Fatalf("a dead holder: %+v", got)
		}
		stale := us
		stale.Beat = -2
		if token, err = r.TakeOver(r.ctx, stale, a, them.Member); err != nil || token != 0 {
			r.Errorf("taken over on an old beat: %d, %v", token, err)
		}
		if got := r.acquire(us, a)[0]; !got.Held || !got.Holder.Dead {
			r.Fatalf("an evicted holder: %+v", got)
		}
		if token, err = r.TakeOver(r.ctx, us, a, them.Member); err != nil || token <= old.Token {
			r.Fatalf("not taken over: %d after %d, %v", token, old.Token, err)
		}
		if token, err = r.TakeOver(r.ctx, us, ask("k"), them.Member); err != nil || token != 0 {
			r.Errorf("taken over twice: %d, %v", token, err)
		}
		if got := r.release(old); got[0] != (lease.Returned{}) {
			r.Errorf("the dead one released it: %+v", got)
		}
		r.ok(r.Leave(r.ctx, us.Member))
		third := r.join("third")
		if token, err = r.TakeOver(r.ctx, third, ask("k"), us.Member); err != nil || token == 0 {
			r.Errorf("not taken over from one that left: %d, %v", token, err)
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
		if got := r.release(back, free); got[0] != (lease.Returned{Stood: true}) || got[1] != (lease.Returned{Freed: true}) {
			r.Errorf("released under a guard: %+v", got)
		}
		if got := r.release(back); got[0] != (lease.Returned{Stood: true}) {
			r.Errorf("released under a guard: %+v", got)
		}
		if _, err := r.ExpireIn(r.ctx, back, time.Hour); r.Fault(err) != lease.Busy {
			r.Errorf("ended under a guard: %v", err)
		}
		if got := r.acquire(us, ask("k"))[0]; !got.Held {
			r.Errorf("acquired under a guard: %+v", got)
		}
		r.kill(us)
		them := r.join("them")
		if token, err := r.TakeOver(r.ctx, them, ask("k"), us.Member); err != nil || token != 0 {
			r.Errorf("taken over under a guard: %d, %v", token, err)
		}
		if took := time.Since(began); took > 10*time.Second {
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
		a := ask("detached")
		a.Hold, a.Detached = 300*time.Millisecond, true
		r.take(us, a)
		r.ok(r.Leave(r.ctx, us.Member))
		got := r.acquire(them, ask("detached"))[0]
		if !got.Held || got.Holder.Dead || got.Holder.Member != (member.ID{}) || got.Holder.Remaining <= 0 || got.Holder.Remaining > a.Hold {
			r.Errorf("refused with %+v", got)
		}
		time.Sleep(a.Hold)
		r.take(them, ask("detached"))

		back := r.take(them, ask("k"))
		if ours, err := r.ExpireIn(r.ctx, back, 2*time.Hour); err != nil || !ours {
			r.Errorf("ExpireIn: %v, %v", ours, err)
		}
		if got := r.acquire(them, ask("k"))[0]; !got.Held || got.Holder.Remaining > time.Hour {
			r.Errorf("the heartbeat's end comes first: %+v", got)
		}
		if ours, err := r.ExpireIn(r.ctx, back, time.Millisecond); err != nil || !ours {
			r.Errorf("ExpireIn: %v, %v", ours, err)
		}
		time.Sleep(20 * time.Millisecond)
		if ours, err := r.ExpireIn(r.ctx, back, time.Hour); err != nil || ours {
			r.Errorf("ExpireIn of what has ended: %v, %v", ours, err)
		}
		r.take(them, ask("k"))
		if got := r.release(back); got[0] != (lease.Returned{}) {
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
		var asks []lease.Ask
		var backs []lease.Back
		for i := range 450 {
			asks = append(asks, ask(fmt.Sprint("free ", i)))
		}
		for i, a := range r.acquire(us, asks...) {
			backs = append(backs, lease.Back{Key: asks[i].Key, Token: a.Token, Handle: asks[i].Handle})
		}
		for _, got := range r.release(backs...) {
			if !got.Freed {
				r.Fatalf("not released: %+v", got)
			}
		}
		r.exec("UPDATE dblock_lease SET changed_at = TIMESTAMPADD(MINUTE, -70, UTC_TIMESTAMP(6))")
		r.release(r.take(us, ask("fresh")))
		r.ok(r.Wait(r.ctx, "held", us.Member, time.Hour))
		r.ok(r.Wait(r.ctx, "held", us.Member, time.Hour))
		r.ok(r.Wait(r.ctx, "held", dead.Member, time.Microsecond))
		r.ok(r.Wait(r.ctx, "stopped", us.Member, time.Hour))
		r.ok(r.StopWaiting(r.ctx, "stopped", us.Member))
		expired := r.join("expired")
		r.exec("UPDATE dblock_lease SET member_id = ? WHERE lease_key = 'of the expired'", expired.Member[:])
		r.kill(expired)
		r.ok(r.Leave(r.ctx, dead.Member))
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
		listed, err := r.List(r.ctx)
		r.ok(err)
		if left != 2 || len(listed) != 1 || listed[0].Waiters != 1 {
			r.Errorf("%d rows left, listed %+v", left, listed)
		}
	})
}

// TestRace has a crowd race for few keys, some of them in batches, while a sweeper and the heartbeats
// go on: nobody ever holds a key beside another, tokens grow, and nothing fails.
func TestRace(t *testing.T) {
	each(t, races, func(r rig) {
		rounds := 100
		if strings.HasSuffix(r.Name(), "/plain") {
			rounds = 300
		}
		var holders, last [4]atomic.Int64
		var grants, stood atomic.Int64
		var crowd sync.WaitGroup
		fail := func(format string, args ...any) { r.Errorf(format, args...) }
		for range 16 {
			us := r.join("racer")
			crowd.Go(func() {
				for n := range rounds {
					if n%100 == 50 {
						beat, alive, err := r.Beat(r.ctx, us.Member, time.Hour)
						if err != nil || !alive {
							fail("beat: %v %v", alive, err)
						}
						us.Beat = beat
					}
					keys := rand.Perm(4)[:1+n%2]
					asks := make([]lease.Ask, len(keys))
					for i, k := range keys {
						asks[i] = ask(fmt.Sprint(k))
					}
					got, err := r.Acquire(r.ctx, us, asks)
					if err != nil {
						fail("acquire: %v", err)
						return
					}
					var backs []lease.Back
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
						backs = append(backs, lease.Back{Key: asks[i].Key, Token: got[i].Token, Handle: asks[i].Handle})
					}
					for _, k := range keys {
						if slices.ContainsFunc(backs, func(b lease.Back) bool { return b.Key == fmt.Sprint(k) }) {
							holders[k].Add(-1)
						}
					}
					for len(backs) > 0 {
						got, err := r.Release(r.ctx, backs)
						if err != nil {
							fail("release: %v", err)
							return
						}
						var left []lease.Back
						for i, b := range backs {
							if got[i].Stood {
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

// TestFreshKeys has pairs race for keys that nobody has locked before.
func TestFreshKeys(t *testing.T) {
	each(t, races, func(r rig) {
		var crowd sync.WaitGroup
		var granted [300]atomic.Int64
		for range 8 {
			us := r.join("racer")
			crowd.Go(func() {
				for n := range granted {
					got, err := r.Acquire(r.ctx, us, []lease.Ask{ask(fmt.Sprint("fresh ", n))})
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
		ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
		defer cancel()
		if _, alive, err := r.Beat(ctx, us.Member, time.Hour); err != nil || !alive {
			r.Errorf("beat: %v, %v", alive, err)
		}
		short, cancel := context.WithTimeout(r.ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := r.Acquire(short, us, []lease.Ask{ask("k")}); r.Fault(err) != lease.Busy {
			r.Errorf("no connection: %v", err)
		}
		// A connection that broke is made anew.
		var pid int64
		r.ok(r.heart.conn.QueryRowContext(r.ctx, "SELECT CONNECTION_ID()").Scan(&pid))
		_, err = busy.ExecContext(r.ctx, fmt.Sprint("KILL ", pid))
		r.ok(err)
		time.Sleep(100 * time.Millisecond)
		for try := 1; ; try++ {
			_, alive, err := r.Beat(ctx, us.Member, time.Hour)
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

// TestHeartbeatsAmongAcquires has one process acquire and release with all its might while its heart
// beats without a pause: the statements read the member's row under a shared lock, and none may fail
// by that, or hold a heartbeat up.
func TestHeartbeatsAmongAcquires(t *testing.T) {
	each(t, races, func(r rig) {
		us := r.join("us")
		var beat atomic.Int64
		var crowd sync.WaitGroup
		for g := range 16 {
			crowd.Go(func() {
				for n := range 60 {
					a := ask(fmt.Sprint(g%8, " ", n%3))
					got, err := r.Acquire(r.ctx, lease.By{Member: us.Member, Beat: beat.Load() + 1000}, []lease.Ask{a})
					if err != nil {
						r.Errorf("acquire: %v", err)
						return
					}
					if got[0].Token != 0 {
						back := lease.Back{Key: a.Key, Token: got[0].Token, Handle: a.Handle}
						for stood := true; stood; {
							got, err := r.Release(r.ctx, []lease.Back{back})
							if err != nil || !got[0].Freed && !got[0].Stood {
								r.Errorf("release: %+v, %v", got, err)
								return
							}
							stood = got[0].Stood
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
			n, alive, err := r.Beat(r.ctx, us.Member, time.Hour)
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
		if longest > 5*time.Second {
			r.Errorf("a heartbeat took %v", longest)
		}
	})
}
