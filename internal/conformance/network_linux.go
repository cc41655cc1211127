package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

const (
	// cutBound is the IdleTimeout, or the TTL, of who is cut off. A tenth of it before its end the holder is told.
	cutBound = 3 * time.Second

	forever = 24 * time.Hour // of the control
)

// runCut runs what takes a network that can be cut, where such can be had.
func (e Session) runCut(t *testing.T) { runCut(t, e.Kind, e.aNetworkFallsSilent) }

func (e Lease) runCut(t *testing.T) { runCut(t, e.Kind, e.aNetworkFallsSilent) }

// runCut runs a test that returns what was late: a busy machine may be, and not always.
func runCut(t *testing.T, kind devdb.Kind, test func(*testing.T) error) {
	if !testdb.Networks() {
		return
	}
	t.Run("ANetworkFallsSilent", func(t *testing.T) {
		t.Parallel()
		if !testdb.Apart(t, kind) {
			return
		}
		var late error
		for range 3 {
			if t.Run("Once", func(t *testing.T) { late = test(t) }); late == nil {
				return
			}
			t.Log(late)
		}
		t.Error(late)
	})
}

// silence is what a test of it needs: processes at the far end of a wire, with a lock each. That of the control is kept for
// ever, so that it shows that nothing but the bound frees the other one: neither end of a connection hears that it is cut.
type silence struct {
	far             *testdb.Far
	holder, control *child
	began           time.Duration
	late            error
}

// inTime notes what should have come before the bound and a second had passed.
func (n *silence) inTime(what string, at time.Duration) {
	if took := at - n.began; took > cutBound+time.Second {
		n.late = errors.Join(n.late, fmt.Errorf("%s after %v, want %v and a second", what, took, cutBound))
	}
}

func newSilence(t *testing.T, start func(far *testdb.Far, key string, bound time.Duration) *child) *silence {
	t.Helper()
	n := &silence{far: testdb.NewFar(t)}
	n.holder, n.control = start(n.far, "k", cutBound), start(n.far, "control", forever)
	t.Cleanup(n.holder.kill)
	t.Cleanup(n.control.kill)
	n.holder.held(t)
	n.control.held(t)
	time.Sleep(cutBound + cutBound/6) // it is kept alive, and between two signs of life
	return n
}

// taken is when another process had the lock.
type taken struct {
	lock *dblock.Lock
	at   time.Duration
}

// fall cuts the wire while another process waits.
func (n *silence) fall(t *testing.T, other dblock.Locker) <-chan taken {
	t.Helper()
	got := take(t, other, "k")
	n.began = uptime()
	n.far.Cut(t)
	return got
}

func take(t *testing.T, l dblock.Locker, key string) <-chan taken {
	got := make(chan taken, 1)
	go func() {
		lock := acquire(t, l, key)
		got <- taken{lock, uptime()}
	}()
	return got
}

// judge fails where the lock was free too late, or too early for who had it. It returns false where the machine was so busy that it was
// lost before the cut.
func (n *silence) judge(t *testing.T, freed time.Duration, why dblock.Reason) (atTheCut bool) {
	t.Helper()
	last, ended := n.holder.counted(t, &dblock.LostError{Key: "k", Reason: why})
	t.Logf("since the cut: last counted on after %v, its context ended after %v, free for others after %v",
		last-n.began, ended-n.began, freed-n.began)
	if ended < n.began {
		n.late = errors.Join(n.late, fmt.Errorf("it was lost %v before the cut: this shows nothing", n.began-ended))
		return false
	}
	n.inTime("it is free", freed)
	if last > freed || ended > freed {
		t.Errorf("others could have it, and the holder counted on it for %v more, its context lived for %v more", last-freed, ended-freed)
	}
	time.Sleep(n.began + cutBound + time.Second - uptime()) // by then the control's lock would have to be free, too
	return true
}

// follows has a process at the far end acquire a lock that another one has, when the wire is whole again.
func follows(t *testing.T, c *child, next *dblock.Lock) {
	t.Helper()
	if next.Context().Err() != nil {
		t.Errorf("%q is lost to who had it next: %v", next.Key(), context.Cause(next.Context()))
	}
	free := uptime()
	release(t, next)
	if since := c.held(t); since < free {
		t.Errorf("%q was had at the far end %v before it was free", next.Key(), free-since)
	}
}

// aNetworkFallsSilent: the server frees the lock of who was cut off from it within the IdleTimeout, after its holder has ceased to
// count on it.
func (e Session) aNetworkFallsSilent(t *testing.T) error {
	near, far := testdb.OwnNear(t, e.Kind)
	s := &sessionPlace{e: e, dsn: near, db: connect(t, e.Kind, near), keys: map[string]bool{}}
	other := s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
	n := newSilence(t, func(m *testdb.Far, key string, bound time.Duration) *child {
		return e.startFar(t, m, far, key, SessionOptions{IdleTimeout: bound})
	})
	line := e.newFarLine(t, s, other, n.far, far)
	id, control := s.holder(t, "k"), s.holder(t, "control")
	if id == 0 || control == 0 {
		release(t, line.lock)
		return fmt.Errorf("before the cut the keys are held by %d and %d: this shows nothing", id, control)
	}
	got := n.fall(t, other)
	if err := line.grantToTheDead(t, n); err != nil {
		n.far.Mend(t)
		release(t, (<-got).lock)
		return err
	}
	for ctx := soon(t); s.holder(t, "k") == id; {
		if ctx.Err() != nil {
			t.Fatal("the server frees nothing")
		}
	}
	freed := uptime()
	next := <-got
	n.inTime("who waited has it", next.at)
	if !n.judge(t, freed, dblock.Disconnected) {
		n.far.Mend(t)
		release(t, next.lock)
		release(t, line.isFreed(t, n))
		return n.late
	}
	if id := s.holder(t, "control"); id != control {
		t.Errorf("the control's lock is held by %d, was by %d: something else than silence ended it", id, control)
	}
	after := line.isFreed(t, n)
	n.far.Mend(t)
	follows(t, n.holder, next.lock)
	follows(t, line.waiter, after)
	return n.late
}

func (e Session) startFar(t *testing.T, far *testdb.Far, dsn, key string, o SessionOptions) *child {
	t.Helper()
	return startChild(t, e.toCountOn(far.Command(t.Context(), os.Args[0]), dsn, key, o))
}

// farLine is a process at the far end that waits in the server's line, and is granted the lock when it can't be told.
type farLine struct {
	s      *sessionPlace
	other  dblock.Locker
	lock   *dblock.Lock
	waiter *child
	next   <-chan taken
}

func (e Session) newFarLine(t *testing.T, s *sessionPlace, other dblock.Locker, far *testdb.Far, dsn string) *farLine {
	t.Helper()
	l := &farLine{s: s, other: other, lock: acquire(t, other, "line")}
	l.waiter = e.startFar(t, far, dsn, "line", SessionOptions{IdleTimeout: cutBound, ServerQueue: true})
	t.Cleanup(l.waiter.kill)
	s.someoneWaits(t, "line")
	return l
}

// grantToTheDead gives back what the process at the far end waits for. It returns an error where the server had noticed before that this
// one is gone, and granted it to nobody.
func (l *farLine) grantToTheDead(t *testing.T, n *silence) error {
	t.Helper()
	release(t, l.lock)
	after := uptime() - n.began
	for l.s.holder(t, "line") == 0 {
		if uptime() > n.began+2*cutBound {
			return fmt.Errorf("given back %v after the cut, and granted to nobody who waited: this shows nothing", after)
		}
	}
	l.next = take(t, l.other, "line")
	return nil
}

func (l *farLine) isFreed(t *testing.T, n *silence) *dblock.Lock {
	t.Helper()
	next := <-l.next
	n.inTime("what was granted to one that was cut off is free", next.at)
	return next.lock
}

// aNetworkFallsSilent: others have the lease of who was cut off within the TTL, after its holder has ceased to count on it.
func (e Lease) aNetworkFallsSilent(t *testing.T) error {
	near, far := testdb.OwnNear(t, e.Kind)
	v := &vault{e: e, dsn: near, db: connect(t, e.Kind, near)}
	if _, err := migrations.Up(t.Context(), v.db, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	other := v.process(t, LeaseOptions{Poll: 20 * time.Millisecond})
	n := newSilence(t, func(m *testdb.Far, key string, bound time.Duration) *child {
		return startChild(t, e.toCountOn(m.Command(t.Context(), os.Args[0]), far, key, bound))
	})
	next := <-n.fall(t, other)
	if !n.judge(t, next.at, dblock.Expired) {
		n.far.Mend(t)
		release(t, next.lock)
		return n.late
	}
	_, err := other.TryAcquire(t.Context(), "control")
	isHeld(t, err, "control")
	n.far.Mend(t)
	follows(t, n.holder, next.lock)
	return n.late
}
