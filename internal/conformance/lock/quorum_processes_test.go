package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// A process that uses a Quorum is this test binary again. Its callers hand one key on, and one of
// them keeps another key.
const (
	quorumNodes = "DBLOCK_TEST_QUORUM_NODES" // one a line: kind and DSN
	quorumDir   = "DBLOCK_TEST_QUORUM_DIR"   // of the sections
	quorumOne   = "DBLOCK_TEST_QUORUM_ONE"   // set: one node is enough

	quorumCallers = 6
	quorumKept    = "kept"
	quorumTurns   = 20 // that show that a process makes progress
)

// quorumProcess is such a process.
type quorumProcess struct {
	sections sections
	nodes    []Leases
	q        *dblock.Quorum // nil: one node is enough
	turns    atomic.Int64   // that were granted
}

// quorumMain runs the process, until the test kills it.
func quorumMain() {
	if os.Getenv(quorumNodes) != "" {
		fmt.Println("error", runQuorumProcess(context.Background()))
		os.Exit(1)
	}
}

func runQuorumProcess(ctx context.Context) error {
	p := &quorumProcess{sections: sections{os.Getenv(quorumDir)}}
	for line := range strings.SplitSeq(os.Getenv(quorumNodes), "\n") {
		kind, dsn, _ := strings.Cut(line, " ")
		l, _, err := node{devdb.Kind(kind), dsn, nil}.open(ctx, &faultconn.Dialer{})
		if err != nil {
			return err
		}
		p.nodes = append(p.nodes, l)
	}
	if os.Getenv(quorumOne) == "" {
		var err error
		if p.q, err = quorumOf(p.nodes, quorumTTL/4); err != nil {
			return err
		}
		go func() {
			for {
				p.turn(ctx, quorumKept, time.Hour)
			}
		}()
	}
	fmt.Println("ready")
	for range quorumCallers {
		go func() {
			for {
				p.turn(ctx, "k", rand.N(5*time.Millisecond))
			}
		}()
	}
	for {
		began := time.Now()
		time.Sleep(quorumTTL / 40)
		if time.Since(began) > quorumTTL/8 { // it sends no heartbeats meanwhile
			fmt.Println("stalled", time.Since(began))
		}
		fmt.Println("turns", p.turns.Load())
	}
}

// acquire waits for a key, of which a Quorum grants one lock at a time.
func (p *quorumProcess) acquire(ctx context.Context, key string) (*dblock.Lock, error) {
	if p.q != nil {
		return p.q.Acquire(ctx, key, dblock.WithLabel(strconv.Itoa(os.Getpid())))
	}
	for ; ; time.Sleep(time.Millisecond) {
		for _, n := range p.nodes {
			if lock, err := n.TryAcquire(ctx, key); err == nil || ctx.Err() != nil {
				return lock, err
			}
		}
	}
}

// turn acquires a key, and is in its section while the lock is valid, for a time at most.
func (p *quorumProcess) turn(ctx context.Context, key string, stays time.Duration) {
	waits, cancel := context.WithTimeout(ctx, 2*quorumTTL)
	defer cancel()
	lock, err := p.acquire(waits, key)
	if err != nil {
		if !isAny(err, dblock.ErrNotAcquired, dblock.ErrUnavailable) {
			fmt.Println("error", err)
		}
		return
	}
	defer func() { _ = lock.Release(ctx) }()
	if key != quorumKept {
		p.turns.Add(1)
	}
	valid := lock.ValidUntil()
	inside, err := p.sections.enter(exclusionOp{keys: []string{key}})
	entered := time.Now()
	if err != nil {
		if errors.Is(err, errOverlap) && entered.Before(valid) && entered.Before(lock.ValidUntil()) {
			fmt.Println("overlap", entered.UnixNano())
		}
		return
	}
	for now := entered; now.Sub(entered) < stays && now.Before(valid) && lock.Context().Err() == nil; now = time.Now() {
		time.Sleep(min(time.Millisecond, stays))
		if next := lock.ValidUntil(); !next.IsZero() {
			valid = next
		}
	}
	inside.leave()
	if left := time.Now(); left.After(valid) {
		fmt.Println("late", valid.UnixNano(), left.UnixNano())
	}
	if why := context.Cause(lock.Context()); why != nil && key == quorumKept {
		fmt.Println("lost", why)
	}
}

// quorumRun is the processes of a test. Locks of the operating system show whether two callers
// meet.
type quorumRun struct {
	ctx  context.Context
	env  []string
	all  []*suite.Child
	read sync.WaitGroup

	mu            sync.Mutex
	turns         map[*suite.Child]int64
	overlaps      []int64 // the times at which a caller met another one
	late          []lateSection
	lost, stalled []string // kept locks that were lost, and stalls of processes
	other         []string
}

func newQuorumRun(t *testing.T, nodes []node, processes int, more ...string) *quorumRun {
	t.Helper()
	var lines []string
	for _, n := range nodes {
		lines = append(lines, string(n.kind)+" "+n.dsn)
	}
	r := &quorumRun{ctx: t.Context(), turns: make(map[*suite.Child]int64), all: make([]*suite.Child, processes)}
	r.env = append(os.Environ(), quorumNodes+"="+strings.Join(lines, "\n"), quorumDir+"="+t.TempDir())
	r.env = append(r.env, more...)
	t.Cleanup(r.end)
	for i := range r.all {
		r.start(t, i)
	}
	return r
}

// start starts a process, in the place of one that was killed.
func (r *quorumRun) start(t *testing.T, i int) {
	t.Helper()
	cmd := exec.CommandContext(r.ctx, os.Args[0])
	cmd.Env = r.env
	c := suite.StartChild(t, cmd)
	r.all[i] = c
	c.Says(t, "ready")
	r.read.Go(func() {
		for c.Lines.Scan() {
			r.note(c, c.Lines.Text())
		}
	})
}

func (r *quorumRun) note(c *suite.Child, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	word, rest, _ := strings.Cut(line, " ")
	var from, to int64
	_, _ = fmt.Sscan(rest, &from, &to)
	switch word {
	case "turns":
		r.turns[c] = from
	case "overlap":
		r.overlaps = append(r.overlaps, from)
	case "late":
		r.late = append(r.late, lateSection{from: from, to: to})
	case "lost":
		r.lost = append(r.lost, rest)
	case "stalled":
		r.stalled = append(r.stalled, rest)
	default:
		r.other = append(r.other, line)
	}
}

func (r *quorumRun) turnsOf(processes ...*suite.Child) (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range processes {
		n += r.turns[c]
	}
	return n
}

// makeProgress waits until each of the processes has had some more turns.
func (r *quorumRun) makeProgress(t *testing.T, when string, processes ...*suite.Child) {
	t.Helper()
	for _, c := range processes {
		until := r.turnsOf(c) + quorumTurns
		suite.Until(t, "a process makes progress, "+when, func() bool { return r.turnsOf(c) >= until })
	}
}

// keeps waits until one process has the kept lock on all nodes. It forgets what was lost before.
func (r *quorumRun) keeps(t *testing.T, nodes []Leases) {
	t.Helper()
	suite.Until(t, "a process has the kept lock on all nodes", func() bool {
		has := make(map[string]int)
		for _, l := range nodes {
			if holder, err := l.Holder(t.Context(), quorumKept); err == nil {
				has[holder.Holder.Label]++
			}
		}
		return slices.ContainsFunc(r.all, func(c *suite.Child) bool { return has[strconv.Itoa(c.Process.Pid)] == len(nodes) })
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost, r.stalled = nil, nil
}

// keptIt fails if a kept lock was lost, and no process stood still.
func (r *quorumRun) keptIt(t *testing.T, when string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.stalled) == 0 {
		assert.Empty(t, r.lost, when)
	}
}

func (r *quorumRun) end() {
	for _, c := range r.all {
		if c != nil {
			c.Kill()
		}
	}
	r.read.Wait()
}

// overlapped counts the overlaps that no late holder excuses.
func (r *quorumRun) overlapped() int {
	return len(slices.DeleteFunc(slices.Clone(r.overlaps), func(at int64) bool { return excused(r.late, at) }))
}

// TestQuorumFaults crashes and freezes three servers. No two callers are in a section at once.
func TestQuorumFaults(t *testing.T) {
	t.Parallel()
	nodes := nodesOfTheirOwn(t)
	if len(nodes) < 3 {
		t.Log("no servers to kill")
		return
	}
	leases := leasesOf(t, nodes)
	r := newQuorumRun(t, nodes, 2)
	r.makeProgress(t, "all are up", r.all...)
	rounds := 1
	if os.Getenv(suite.EnvSoak) != "" {
		rounds = 10
	}
	if !t.Run("TestFaultsOfQuorumProcesses", func(t *testing.T) {
		for n := range rounds * len(nodes) {
			r.oneIsDown(t, nodes, leases, n)
		}
	}) {
		return
	}
	r.twoAreDown(t, nodes)
	r.end()
	assert.Zero(t, r.overlapped(), "callers that met")
	assert.Empty(t, r.other)
}

// oneIsDown restarts a server, which is down for longer than a lock lasts, and a kept lock outlives
// that. Then it kills a process while the server is frozen.
func (r *quorumRun) oneIsDown(t *testing.T, nodes []node, leases []Leases, n int) {
	t.Helper()
	i := n % len(nodes)
	s, name := nodes[i].server, fmt.Sprint("node ", i)
	r.keeps(t, leases)
	require.NoError(t, s.Kill())
	time.Sleep(quorumTTL) // what it had granted has ended
	r.makeProgress(t, name+" is down", r.all...)
	require.NoError(t, s.Restart(t.Context()))
	suite.Until(t, name+" grants again", func() bool {
		lock, err := leases[i].Acquire(t.Context(), "grants again")
		if err == nil {
			_ = lock.Release(t.Context())
		}
		return err == nil
	})
	r.keptIt(t, name+" was restarted")
	r.keeps(t, leases)
	require.NoError(t, s.Freeze())
	r.all[n%2].Kill()
	r.makeProgress(t, name+" is frozen, and a process was killed", r.all[1-n%2])
	require.NoError(t, s.Thaw())
	r.start(t, n%2)
}

// twoAreDown: nothing is granted. A caller may be at work when the second server goes down.
func (r *quorumRun) twoAreDown(t *testing.T, nodes []node) {
	t.Helper()
	require.NoError(t, nodes[0].server.Kill())
	require.NoError(t, nodes[1].server.Freeze())
	time.Sleep(quorumTTL / 4) // what was granted before has been heard
	before := r.turnsOf(r.all...)
	time.Sleep(2 * quorumTTL)
	assert.LessOrEqual(t, r.turnsOf(r.all...)-before, int64(1), "turns with two of three down")
	require.NoError(t, errors.Join(nodes[1].server.Thaw(), nodes[0].server.Restart(t.Context())))
	r.makeProgress(t, "all are up again", r.all...)
}

// TestFaultsControlQuorumOfOne is the same with one node enough: callers of two processes meet, and
// so do those of one.
func TestFaultsControlQuorumOfOne(t *testing.T) {
	t.Parallel()
	for name, processes := range map[string]int{"Processes": 2, "TestFaultsControlOneOfThree": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meet := func() bool {
				r := newQuorumRun(t, sharedNodes(t), processes, quorumOne+"=1")
				r.makeProgress(t, "one is enough", r.all...)
				r.end()
				return r.overlapped() > 0
			}
			for range 10 { // whether they meet in a run is left to chance
				if meet() {
					return
				}
			}
			t.Error("no overlap in 10 runs: the sections show nothing")
		})
	}
}
