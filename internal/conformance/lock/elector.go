package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const (
	candidates  = 5
	termStrikes = 3               // in a short run
	termEvery   = 3 * time.Second // in a long one
	soakTerms   = 2 * time.Minute / termEvery
)

// leadersFollowInOrder kills and stops whoever leads, again and again: another one leads soon, and no leader writes
// after a later one has.
func leadersFollowInOrder(t *testing.T, v *env) {
	n, every := termStrikes, time.Duration(0)
	if os.Getenv(suite.EnvSoak) != "" {
		n, every = int(soakTerms), termEvery
	}
	c := v.newCampaign(t, guardedTerms)
	for i := range n {
		struck := time.Now()
		kill := i%2 == 1
		took := c.strike(t, kill)
		if t.Logf("killed %v: the next one led after %v, of a TTL of %v", kill, took, termTTL); took > termTTL+time.Second {
			t.Errorf("nobody led for %v", took)
		}
		time.Sleep(time.Until(struck.Add(every)))
	}
	writes, terms, late := c.end(t)
	t.Logf("%d strikes, %d terms, %d writes", n, terms, writes)
	if late > 0 || terms < n { // the first one may have been struck before it had written
		t.Errorf("%d writes of a leader after a later one's, %d terms", late, terms)
	}
}

// controlLeadersMeet is the same program without the guard.
func controlLeadersMeet(t *testing.T, v *env) {
	for range 3 {
		c := v.newCampaign(t, unguardedTerms)
		for range 2 {
			c.strike(t, false)
		}
		if _, _, late := c.end(t); late > 0 {
			t.Logf("%d writes of a leader after a later one's", late)
			return
		}
	}
	t.Error("no leader has written after a later one: the test with the guard shows nothing")
}

// campaign is candidates in processes of their own.
type campaign struct {
	v       *env
	mode    string
	ctx     context.Context
	stop    context.CancelFunc
	leads   chan line // each
	writes  chan line // those that somebody waits for
	all     []*suite.Child
	readers sync.WaitGroup
}

// line is what a candidate has said.
type line struct {
	by    *suite.Child
	token int64
	at    time.Time
}

func (v *env) newCampaign(t *testing.T, mode string) *campaign {
	t.Helper()
	v.exec(t, "DROP TABLE IF EXISTS terms")
	v.exec(t, "CREATE TABLE terms (n BIGINT PRIMARY KEY, token BIGINT)")
	c := &campaign{v: v, mode: mode, leads: make(chan line, 10_000), writes: make(chan line)}
	c.ctx, c.stop = context.WithTimeout(t.Context(), 5*time.Minute)
	for range candidates {
		c.start(t)
	}
	return c
}

func (c *campaign) start(t *testing.T) {
	t.Helper()
	child := c.v.startHolder(t, c.ctx, c.mode)
	c.all = append(c.all, child)
	c.readers.Go(func() {
		for child.Lines.Scan() {
			said := line{by: child, at: time.Now()}
			var what string
			if _, err := fmt.Sscan(child.Lines.Text(), &what, &said.token); err != nil {
				continue
			}
			if what == "leads" {
				c.leads <- said
				continue
			}
			select {
			case c.writes <- said:
			default: // nobody is to be struck now
			}
		}
	})
}

// writer waits for a leader, of a term after that one, that is about to write.
func (c *campaign) writer(t *testing.T, after int64) line {
	t.Helper()
	for {
		select {
		case w := <-c.writes:
			if w.token > after {
				return w
			}
		case <-c.ctx.Done():
			t.Fatal("nobody writes")
		}
	}
}

// strike kills the leader that is about to write, or stops it until another one has written; it tells how long nobody led.
func (c *campaign) strike(t *testing.T, kill bool) (took time.Duration) {
	t.Helper()
	struck := c.writer(t, 0)
	began := time.Now()
	if kill {
		_ = struck.by.Process.Kill()
	} else {
		_ = suite.Suspend(struck.by.Process)
	}
	for next := (line{}); next.token <= struck.token; {
		select {
		case next = <-c.leads:
			took = next.at.Sub(began)
		case <-c.ctx.Done():
			t.Fatal("nobody leads")
		}
	}
	c.writer(t, c.writer(t, struck.token).token-1) // it is about to write once more, and so has written
	if kill {
		c.start(t)
	} else {
		time.Sleep(time.Until(began.Add(termTTL * 3 / 2)))
		_ = suite.Resume(struck.by.Process)
	}
	return took
}

// end ends all candidates, and counts what was written: writes, terms, and writes of a term after those of a later one.
func (c *campaign) end(t *testing.T) (writes, terms, late int) {
	t.Helper()
	time.Sleep(termTTL / 2) // the last one that was stopped goes on, too
	c.stop()
	for _, child := range c.all {
		child.Kill()
	}
	c.readers.Wait()
	rows, err := c.v.db.QueryContext(t.Context(), "SELECT token FROM terms ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var last int64
	for ; rows.Next(); writes++ {
		var token int64
		if err := rows.Scan(&token); err != nil {
			t.Fatal(err)
		}
		switch {
		case token > last:
			terms, last = terms+1, token
		case token < last:
			late++
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return writes, terms, late
}

// counted counts how often somebody began to wait.
type counted struct {
	Leases
	n atomic.Int64
}

func (c *counted) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	c.n.Add(1)
	return c.Leases.Acquire(ctx, key, opts...)
}

// aResignationHandsOver has the leader resign: one in another process leads, and shows its address.
func aResignationHandsOver(t *testing.T, v *env) {
	type leader struct {
		i    int
		term dblock.Fence
	}
	ctx, stop := context.WithCancel(suite.Soon(t))
	leads := make(chan leader, 100)
	var all [2]*dblock.Elector
	var campaigns [2]*counted
	var terms [2]int64
	var runs sync.WaitGroup
	for i := range all {
		var err error
		campaigns[i] = &counted{Leases: v.process(t, LeaseOptions{})}
		if all[i], err = dblock.NewElector(campaigns[i], "leader", dblock.ElectorOptions{
			Data: fmt.Append(nil, "address ", i), Failed: func(err error) { t.Errorf("candidate %d: %v", i, err) },
		}); err != nil {
			t.Fatal(err)
		}
		runs.Go(func() {
			err := all[i].Run(ctx, func(ctx context.Context, term dblock.Fence) error {
				leads <- leader{i, term}
				<-ctx.Done()
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run returned %v", err)
			}
		})
	}
	defer runs.Wait()
	defer stop()
	now := <-leads
	for range 5 {
		terms[now.i]++
		for other := 1 - now.i; campaigns[other].n.Load() == terms[other] && ctx.Err() == nil; {
			time.Sleep(time.Millisecond) // it stands back yet
		}
		if err := all[now.i].Resign(ctx); err != nil {
			t.Error(err)
			return
		}
		var next leader
		select {
		case next = <-leads:
		case <-ctx.Done():
			t.Error("nobody leads")
			return
		}
		if next.i == now.i || next.term.Token <= now.term.Token {
			t.Errorf("after %v leads %v", now, next)
		}
		h, err := all[now.i].Leader(ctx)
		if err != nil || h.Fence != next.term || string(h.Data) != fmt.Sprint("address ", next.i) {
			t.Errorf("shown: %+v, %v", h, err)
		}
		now = next
	}
}
