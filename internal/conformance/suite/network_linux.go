package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

const (
	// CutBound is the IdleTimeout, or the TTL, of the process that is cut off. A tenth of it before
	// its end the lock is lost.
	CutBound = 3 * time.Second

	forever = 24 * time.Hour // of the control
)

// RunCut runs a test that returns what was late: a busy machine may be, and not always.
func RunCut(t *testing.T, kind devdb.Kind, test func(*testing.T) error) {
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

// Silence is what a test of it needs: processes at the far end of a wire, with a lock each. That of
// the control is kept for ever, so that it shows that nothing but the bound frees the other one:
// neither end of a connection gets an error.
type Silence struct {
	Far             *testdb.Far
	Holder, control *Child
	Began           time.Duration
	Late            error
}

// InTime notes what should have come before the bound and a second had passed.
func (n *Silence) InTime(what string, at time.Duration) {
	if took := at - n.Began; took > CutBound+time.Second {
		n.Late = errors.Join(n.Late, fmt.Errorf("%s after %v, want %v and a second", what, took, CutBound))
	}
}

func NewSilence(t *testing.T, start func(far *testdb.Far, key string, bound time.Duration) *Child) *Silence {
	t.Helper()
	n := &Silence{Far: testdb.NewFar(t)}
	n.Holder, n.control = start(n.Far, "k", CutBound), start(n.Far, "control", forever)
	t.Cleanup(n.Holder.Kill)
	t.Cleanup(n.control.Kill)
	n.Holder.Held(t)
	n.control.Held(t)
	time.Sleep(CutBound + CutBound/6) // it is kept alive, and between two signs of life
	return n
}

// Taken is when another process had the lock.
type Taken struct {
	Lock *dblock.Lock
	At   time.Duration
}

// Fall cuts the wire while another process waits.
func (n *Silence) Fall(t *testing.T, other dblock.Locker) <-chan Taken {
	t.Helper()
	got := Take(t, other, "k")
	n.Began = Uptime()
	n.Far.Cut(t)
	return got
}

func Take(t *testing.T, l dblock.Locker, key string) <-chan Taken {
	got := make(chan Taken, 1)
	go func() {
		lock := Acquire(t, l, key)
		got <- Taken{lock, Uptime()}
	}()
	return got
}

// Check fails if the lock was free too late, or too early for its holder. It returns false if
// the machine was so busy that it was lost before the cut.
func (n *Silence) Check(t *testing.T, freed time.Duration, why dblock.Reason) (atTheCut bool) {
	t.Helper()
	last, ended := n.Holder.Counted(t, &dblock.LostError{Key: "k", Reason: why})
	t.Logf("since the cut: last counted on after %v, its context ended after %v, free for others after %v",
		last-n.Began, ended-n.Began, freed-n.Began)
	if ended < n.Began {
		n.Late = errors.Join(n.Late, fmt.Errorf("it was lost %v before the cut: this shows nothing", n.Began-ended))
		return false
	}
	n.InTime("it is free", freed)
	if last > freed || ended > freed {
		t.Errorf("others could have it, and the holder counted on it for %v more, its context lived for %v more", last-freed, ended-freed)
	}
	time.Sleep(n.Began + CutBound + time.Second - Uptime()) // by then the control's lock would have to be free, too
	return true
}

// Follows has a process at the far end acquire a lock that another one has, when the wire is whole
// again.
func Follows(t *testing.T, c *Child, next *dblock.Lock) {
	t.Helper()
	if next.Context().Err() != nil {
		t.Errorf("%q is lost to who had it next: %v", next.Key(), context.Cause(next.Context()))
	}
	free := Uptime()
	Release(t, next)
	if since := c.Held(t); since < free {
		t.Errorf("%q was had at the far end %v before it was free", next.Key(), free-since)
	}
}
