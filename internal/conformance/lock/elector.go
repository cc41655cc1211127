package lock

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const (
	termTTL = 2 * time.Second

	// lateWrites counts the writes of a leader after a later one's.
	lateWrites = "SELECT count(*) FROM (" +
		"SELECT token, max(token) OVER (ORDER BY n) AS latest FROM terms) t WHERE token < latest"
)

// leadersFollowInOrder kills and stops the leader, again and again.
func leadersFollowInOrder(t *testing.T, v *env) {
	strikes := 3
	if os.Getenv(suite.EnvSoak) != "" {
		strikes = 40
	}
	c := v.newCandidates(t, guardedTerms)
	for i := range strikes {
		c.strike(t, i%2 == 1)
	}
	time.Sleep(termTTL / 2) // the last one that was stopped goes on, too
	assert.Zero(t, v.Count(t, lateWrites))
	// The first leader may have been struck before it had written.
	assert.GreaterOrEqual(t, v.Count(t, "SELECT count(DISTINCT token) FROM terms"), int64(strikes))
}

// controlLeadersMeet is the same program without the guard.
func controlLeadersMeet(t *testing.T, v *env) {
	c := v.newCandidates(t, unguardedTerms)
	for range 6 {
		c.strike(t, false)
		time.Sleep(termTTL / 2)
		if v.Count(t, lateWrites) > 0 {
			return
		}
	}
	t.Error("no leader has written after a later one: the test with the guard shows nothing")
}

// candidates are processes that campaign.
type candidates struct {
	v      *env
	mode   string
	leads  chan term // each
	writes chan term // dropped unless the test waits for one
}

// term is what a candidate has said that it leads, or is about to write.
type term struct {
	by    *suite.Child
	token int64
}

func (v *env) newCandidates(t *testing.T, mode string) *candidates {
	t.Helper()
	v.Exec(t, "CREATE TABLE terms (n BIGINT PRIMARY KEY, token BIGINT)")
	c := &candidates{v: v, mode: mode, leads: make(chan term, 10_000), writes: make(chan term)}
	for range 5 {
		c.start(t)
	}
	return c
}

func (c *candidates) start(t *testing.T) {
	t.Helper()
	child := c.v.startHolder(t, t.Context(), c.mode)
	go func() {
		for child.Lines.Scan() {
			var what string
			said := term{by: child}
			if _, err := fmt.Sscan(child.Lines.Text(), &what, &said.token); err == nil && what == "leads" {
				c.leads <- said
			} else if err == nil {
				select {
				case c.writes <- said:
				default:
				}
			}
		}
	}()
}

// next waits for a term after the one of token.
func next(t *testing.T, terms <-chan term, token int64) (s term) {
	t.Helper()
	for s.token <= token {
		s = suite.Wait(t, terms, "a leader")
	}
	return s
}

// strike kills the leader that is about to write, or stops it until another one has written.
func (c *candidates) strike(t *testing.T, kill bool) {
	t.Helper()
	struck := next(t, c.writes, 0)
	if kill {
		_ = struck.by.Process.Kill()
	} else {
		_ = suite.Suspend(struck.by.Process)
	}
	next(t, c.leads, struck.token)
	next(t, c.writes, next(t, c.writes, struck.token).token-1) // it is about to write once more, and so has written
	if kill {
		c.start(t)
	} else {
		_ = suite.Resume(struck.by.Process)
	}
}

// campaign is a candidate that writes its token behind all that was written before, over and over,
// while it leads. It says when it leads, and when it is about to write.
func (e Lease) campaign(ctx context.Context, dsn string, guard bool) error {
	db, err := e.connect(dsn)
	if err != nil {
		return err
	}
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: termTTL, Poll: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	c, err := dblock.NewElector(l, "leader", dblock.ElectorOptions{})
	if err != nil {
		return err
	}
	for { // a session that the server has ended ends Run: that is fn's own error
		err := c.Run(ctx, func(ctx context.Context, term dblock.Fence) (err error) {
			fmt.Println("leads", term.Token)
			lock, _ := dblock.LockOf(ctx)
			write := fmt.Sprintf("INSERT INTO terms SELECT COALESCE(MAX(n), 0) + 1, %d FROM terms", term.Token)
			for ctx.Err() == nil && err == nil {
				fmt.Println("writes", term.Token)
				time.Sleep(20 * time.Millisecond)
				if guard {
					err = e.Guarded(ctx, l, lock, write, func() {})
				} else {
					_, _ = db.ExecContext(context.WithoutCancel(ctx), write) // beside another leader's it may fail
				}
			}
			return err
		})
		fmt.Fprintln(os.Stderr, "candidate:", err) // a pause has consequences; what counts is what was written
	}
}

// countedLeases counts how many acquisitions have begun.
type countedLeases struct {
	Leases
	n atomic.Int64
}

func (c *countedLeases) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	c.n.Add(1)
	return c.Leases.Acquire(ctx, key, opts...)
}

// aResignationHandsOver has the leader resign while the other process waits.
func aResignationHandsOver(t *testing.T, v *env) {
	type leader struct {
		i    int
		term dblock.Fence
	}
	ctx, stop := context.WithCancel(suite.Soon(t))
	leads := make(chan leader, 100)
	var electors [2]*dblock.Elector
	var leases [2]*countedLeases
	var terms [2]int64
	var runs sync.WaitGroup
	for i := range electors {
		leases[i] = &countedLeases{Leases: v.process(t, LeaseOptions{})}
		electors[i] = suite.Must(dblock.NewElector(leases[i], "leader", dblock.ElectorOptions{
			Data: fmt.Append(nil, "address ", i), Failed: func(err error) { t.Errorf("candidate %d: %v", i, err) },
		}))(t)
		runs.Go(func() {
			assert.ErrorIs(t, electors[i].Run(ctx, func(ctx context.Context, term dblock.Fence) error {
				leads <- leader{i, term}
				<-ctx.Done()
				return nil
			}), context.Canceled)
		})
	}
	defer runs.Wait()
	defer stop()
	now := suite.Wait(t, leads, "a leader")
	for range 5 {
		terms[now.i]++
		suite.Until(t, "the other one waits", func() bool { return leases[1-now.i].n.Load() > terms[1-now.i] })
		assert.NoError(t, electors[now.i].Resign(ctx))
		before := now
		now = suite.Wait(t, leads, "a leader")
		assert.Equal(t, 1-before.i, now.i)
		assert.Greater(t, now.term.Token, before.term.Token)
		h := suite.Must(electors[before.i].Leader(ctx))(t)
		assert.Equal(t, now.term, h.Fence)
		assert.Equal(t, fmt.Sprint("address ", now.i), string(h.Data))
	}
}
