package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// waiter is a process that counts what it sends. It polls so seldom that it needs a watch.
type waiter struct {
	*LeaseLocker
	dialer faultconn.Dialer
	db     *sql.DB
}

func (r rig) waiter(dsn string, conns int, o LeaseOptions) *waiter {
	r.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	r.ok(err)
	w := &waiter{}
	cfg.DialFunc, cfg.Logger = w.dialer.DialContext, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	r.ok(err)
	w.db = sql.OpenDB(connector)
	w.db.SetMaxOpenConns(conns)
	o.TTL = time.Minute
	w.LeaseLocker, err = NewLeaseLocker(r.ctx, w.db, o)
	r.ok(err)
	r.Cleanup(func() {
		_ = w.LeaseLocker.Close(context.Background())
		_ = w.db.Close()
	})
	return w
}

// watches are the sessions that look at keys now.
func (r rig) watches() (ids []int64) {
	r.Helper()
	rows, err := r.db.QueryContext(r.ctx, `SELECT id FROM `+devdb.Processlist+`
		WHERE db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE '%hundreds.n AS n%'`)
	if err != nil {
		return nil // the server is being restarted
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		r.ok(rows.Scan(&id))
		ids = append(ids, id)
	}
	return ids
}

// until waits for something that has to come.
func (r rig) until(what string, is func() bool) {
	r.Helper()
	for !is() {
		if r.ctx.Err() != nil {
			r.Fatalf("%s: not to be seen", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// waits starts a waiter for a key.
func (r rig) waits(w *waiter, key string) <-chan *dblock.Lock {
	got := make(chan *dblock.Lock, 1)
	go func() {
		lock, err := w.Acquire(r.ctx, key)
		if err != nil {
			r.Error(err)
		}
		got <- lock
	}()
	return got
}

func (r rig) hold(l *LeaseLocker, key string) *dblock.Lock {
	r.Helper()
	lock, err := l.Acquire(r.ctx, key)
	r.ok(err)
	return lock
}

// longWait is how long a waiter waits before the key is released.
const longWait = 3 * time.Second

// TestALongWaitIsWatched: a waiter that has waited long sends a statement a second or so, and gets
// the key soon after its release. The control is not watched, and polls.
func TestALongWaitIsWatched(t *testing.T) {
	each(t, plain, func(r rig) {
		holder := r.waiter(r.dsn, 8, LeaseOptions{})
		for name, o := range map[string]LeaseOptions{"watched": {Poll: time.Minute}, "control": {Poll: time.Minute, Watch: -1}} {
			r.Run(name, func(t *testing.T) {
				t.Parallel()
				r := r // its context may be over by now: this may have waited for other tests
				r.T = t
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				t.Cleanup(cancel)
				r.ctx = ctx
				w := r.waiter(r.dsn, 8, o)
				lock := r.hold(holder.LeaseLocker, name)
				got := r.waits(w, name)
				if name == "watched" {
					r.until("a watch", func() bool { return len(r.watches()) > 0 })
				}
				time.Sleep(longWait) // not for an event: too short only tests less
				w.dialer.Arm(0, 0, nil)
				began := time.Now()
				time.Sleep(longWait)
				sent, took := w.dialer.Writes(), time.Since(began)
				r.Logf("%s: %d statements in %v", name, sent, took)
				if name == "control" {
					r.until("many statements", func() bool { return w.dialer.Writes() > 6 })
				} else if sent > 6*int(took/longWait) {
					r.Errorf("%s: %d statements in %v", name, sent, took)
				}
				began = time.Now()
				r.ok(lock.Release(r.ctx))
				lock = <-got
				r.Logf("%s: had after %v", name, time.Since(began))
				if took := time.Since(began); took > 30*time.Second {
					r.Errorf("%s: had after %v", name, took)
				}
				r.ok(lock.Release(r.ctx))
			})
		}
	})
}

// TestAWatchComesBack: its session is killed, and there is another.
func TestAWatchComesBack(t *testing.T) {
	each(t, plain, func(r rig) {
		holder, w := r.waiter(r.dsn, 8, LeaseOptions{}), r.waiter(r.dsn, 8, LeaseOptions{Poll: time.Minute})
		lock := r.hold(holder.LeaseLocker, "k")
		got := r.waits(w, "k")
		for range 2 {
			var before []int64
			r.until("a watch", func() bool { before = r.watches(); return len(before) == 1 })
			r.exec(fmt.Sprintf("KILL %d", before[0]))
			r.until("another watch", func() bool { now := r.watches(); return len(now) == 1 && now[0] != before[0] })
		}
		r.ok(lock.Release(r.ctx))
		r.ok((<-got).Release(r.ctx))
	})
}

// TestAWatchUsesNoConnectionInVain: none without waiters, and none after Close.
func TestAWatchUsesNoConnectionInVain(t *testing.T) {
	each(t, plain, func(r rig) {
		holder, w := r.waiter(r.dsn, 8, LeaseOptions{}), r.waiter(r.dsn, 8, LeaseOptions{})
		lock := r.hold(holder.LeaseLocker, "k")
		got := r.waits(w, "k")
		r.until("a watch", func() bool { return len(r.watches()) == 1 })
		r.ok(lock.Release(r.ctx))
		lock = <-got
		r.until("no watch", func() bool { return w.db.Stats().InUse <= 1 && len(r.watches()) == 0 }) // the heartbeat's
		r.ok(lock.Release(r.ctx))
		lock = r.hold(holder.LeaseLocker, "k")
		ctx, cancel := context.WithCancel(r.ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = w.Acquire(ctx, "k") }()
		r.until("a watch", func() bool { return len(r.watches()) == 1 })
		began := time.Now()
		r.ok(w.Close(r.ctx))
		if took := time.Since(began); took > 30*time.Second {
			r.Errorf("closed after %v", took)
		}
		<-ended
		r.until("no connection in use", func() bool { return w.db.Stats().InUse == 0 && len(r.watches()) == 0 })
		cancel()
		r.ok(lock.Release(r.ctx))
	})
}

// TestASmallPoolPolls: a waiter with it gets the key all the same.
func TestASmallPoolPolls(t *testing.T) {
	each(t, plain, func(r rig) {
		holder, w := r.waiter(r.dsn, 8, LeaseOptions{}), r.waiter(r.dsn, sparing-1, LeaseOptions{})
		lock := r.hold(holder.LeaseLocker, "k")
		w.dialer.Arm(0, 0, nil)
		got := r.waits(w, "k")
		r.until("polls", func() bool { return w.dialer.Writes() > 20 })
		if len(r.watches()) > 0 {
			r.Error("a watch")
		}
		r.ok(lock.Release(r.ctx))
		r.ok((<-got).Release(r.ctx))
	})
}

// TestMoreKeysThanAreWatched: all waiters are served.
func TestMoreKeysThanAreWatched(t *testing.T) {
	each(t, plain, func(r rig) {
		holder, w := r.waiter(r.dsn, 8, LeaseOptions{}), r.waiter(r.dsn, 8, LeaseOptions{})
		const keys = 150
		var held []*dblock.Lock
		var got []<-chan *dblock.Lock
		for n := range keys {
			held = append(held, r.hold(holder.LeaseLocker, fmt.Sprint("k", n)))
			got = append(got, r.waits(w, fmt.Sprint("k", n)))
		}
		r.until("a watch", func() bool { return len(r.watches()) == 1 })
		var all sync.WaitGroup
		for _, lock := range held {
			all.Go(func() { _ = lock.Release(r.ctx) })
		}
		all.Wait()
		for _, lock := range got {
			r.ok((<-lock).Release(r.ctx))
		}
	})
}

// TestAWatchOutlivesItsServer: it is killed and comes back, and so does the watch.
func TestAWatchOutlivesItsServer(t *testing.T) {
	each(t, plain, func(shared rig) {
		server, err := devdb.Start(shared.ctx, shared.kind(), devdb.Options{Durable: true})
		shared.ok(err)
		shared.Cleanup(func() { _ = server.Close() })
		if server.PID() == 0 {
			return // it is given, and not to be killed
		}
		dsn, _, err := server.CreateDatabase(shared.ctx)
		shared.ok(err)
		r := newRig(shared.T, dsn, "")
		holder, w := r.waiter(r.dsn, 8, LeaseOptions{}), r.waiter(r.dsn, 8, LeaseOptions{Poll: time.Minute})
		lock := r.hold(holder.LeaseLocker, "k")
		ctx, cancel := context.WithCancel(r.ctx)
		defer cancel()
		got := make(chan *dblock.Lock, 1)
		go func() {
			for ctx.Err() == nil { // a statement that the crash cut short ends a call
				if lock, err := w.Acquire(ctx, "k"); err == nil {
					got <- lock
					return
				}
			}
		}()
		r.until("a watch", func() bool { return len(r.watches()) == 1 })
		r.ok(server.Kill())
		r.ok(server.Restart(r.ctx))
		r.until("another watch", func() bool { return len(r.watches()) == 1 })
		_ = lock.Release(r.ctx)
		r.ok((<-got).Release(r.ctx))
	})
}
