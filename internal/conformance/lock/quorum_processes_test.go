package lock

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// quorumRun is two processes whose callers use the locks of a Quorum. The operating system judges
// whether two are in a section at once.
type quorumRun struct {
	sites []site
	env   []string
	all   [2]*suite.Child
	read  sync.WaitGroup

	mu    sync.Mutex
	turns map[*suite.Child]int64
	met   []int64 // when a caller found another one in its section
	late  []lateSection
	lost  []string // of the locks that are kept
	stood []string // for how long a process stood still
	bad   []string
}

func newQuorumRun(t *testing.T, sites []site, more ...string) *quorumRun {
	t.Helper()
	var nodes []string
	for _, s := range sites {
		nodes = append(nodes, string(s.kind)+" "+s.dsn)
	}
	r := &quorumRun{sites: sites, turns: make(map[*suite.Child]int64)}
	r.env = append(append(os.Environ(), quorumNodes+"="+strings.Join(nodes, "\n"), quorumDir+"="+t.TempDir()), more...)
	t.Cleanup(r.end)
	for i := range r.all {
		r.start(t, i)
	}
	return r
}

// start starts a process, in the place of one that was killed.
func (r *quorumRun) start(t *testing.T, i int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = r.env
	c := suite.StartChild(t, cmd)
	r.all[i] = c
	c.Says(t, "ready")
	r.read.Go(func() {
		for c.Lines.Scan() {
			r.hear(c, c.Lines.Text())
		}
	})
}

func (r *quorumRun) hear(c *suite.Child, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	word, rest, _ := strings.Cut(line, " ")
	var s lateSection
	var n int64
	switch word {
	case "turns":
		_, _ = fmt.Sscan(rest, &n)
		r.turns[c] = n
	case "overlap":
		_, _ = fmt.Sscan(rest, &s.key, &n)
		r.met = append(r.met, n)
	case "late":
		_, _ = fmt.Sscan(rest, &s.key, &s.from, &s.to)
		r.late = append(r.late, s)
	case "lost":
		r.lost = append(r.lost, rest)
	case "stalled":
		r.stood = append(r.stood, rest)
	default:
		r.bad = append(r.bad, line)
	}
}

// grows waits until processes, or all, have had some more turns.
func (r *quorumRun) grows(t *testing.T, when string, which ...*suite.Child) {
	t.Helper()
	if len(which) == 0 {
		which = r.all[:]
	}
	before := make(map[*suite.Child]int64)
	r.mu.Lock()
	for _, c := range which {
		before[c] = r.turns[c]
	}
	r.mu.Unlock()
	began := time.Now()
	for _, c := range which {
		for {
			r.mu.Lock()
			n := r.turns[c] - before[c]
			r.mu.Unlock()
			if n >= quorumTurns {
				break
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("%s: a process has had %d turns", when, n)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	t.Logf("%s: %d turns of each process in %v", when, quorumTurns, time.Since(began).Round(time.Millisecond))
}

// takeStalls returns for how long processes stood still since the last call.
func (r *quorumRun) takeStalls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	stood := r.stood
	r.stood = nil
	return stood
}

func (r *quorumRun) end() {
	for _, c := range r.all {
		if c != nil {
			c.Kill()
		}
	}
	r.read.Wait()
}

// overlaps counts the times at which two were in a section, except where one of them was late.
func (r *quorumRun) overlaps() (n int) {
	for _, at := range r.met {
		if !excused(r.late, at) {
			n++
		}
	}
	return n
}

// keeps waits until one living process has the kept lock on all nodes. A process that waits for it
// has it on single nodes for moments.
func (r *quorumRun) keeps(t *testing.T, looks []Leases) {
	t.Helper()
	ctx := suite.Soon(t)
	for {
		has := make(map[string]int)
		for _, l := range looks {
			if holder, err := l.Holder(ctx, quorumKept); err == nil {
				has[holder.Holder.Label]++
			}
		}
		for _, c := range r.all {
			if has[strconv.Itoa(c.Process.Pid)] == len(looks) {
				return
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("no process has the kept lock on all nodes: %v", has)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestFaultsOfQuorumProcesses restarts each of three servers in turn, for longer than a lock lasts,
// and kills a process meanwhile. Callers of a process hand a lock on. No two of them meet, and a
// lock that is kept outlives the restarts.
func TestFaultsOfQuorumProcesses(t *testing.T) {
	t.Parallel()
	sites := sitesOfTheirOwn(t)
	if len(sites) < 3 {
		t.Log("no servers to kill")
		return
	}
	looks := []Leases{sites[0].leases(t), sites[1].leases(t), sites[2].leases(t)}
	r := newQuorumRun(t, sites)
	r.grows(t, "all are up")
	rounds, lost := 1, 0
	if os.Getenv(suite.EnvSoak) != "" {
		rounds = 10
	}
	for n := range rounds * len(sites) {
		i, name := n%len(sites), fmt.Sprint("node ", n%len(sites))
		r.keeps(t, looks)
		r.takeStalls()
		must(t, sites[i].server.Kill())
		time.Sleep(quorumTTL) // what it had granted has ended
		r.grows(t, name+" is down")
		must(t, sites[i].server.Restart(t.Context()))
		grantsAgain(t, looks[i])
		r.keeps(t, looks)
		stalls := r.takeStalls()
		r.mu.Lock()
		switch {
		case len(stalls) > 0: // a process that stands still sends no heartbeats
			t.Logf("%s was restarted while processes stood still: %q", name, stalls)
			lost = len(r.lost)
		case len(r.lost) > lost:
			t.Errorf("%s was restarted: %q", name, r.lost[lost:])
			lost = len(r.lost)
		}
		r.mu.Unlock()
		must(t, sites[i].server.Freeze())
		r.all[n%2].Kill()
		r.grows(t, name+" is frozen, and a process was killed", r.all[1-n%2])
		must(t, sites[i].server.Thaw())
		r.start(t, n%2)
	}
	r.end()
	if n := r.overlaps(); n > 0 || len(r.bad) > 0 {
		t.Errorf("%d overlaps; %q", n, r.bad)
	}
}

// TestFaultsControlQuorumOfOne is the same where one node is enough.
func TestFaultsControlQuorumOfOne(t *testing.T) {
	t.Parallel()
	r := newQuorumRun(t, sharedSites(t), quorumOne+"=1")
	r.grows(t, "one is enough")
	r.end()
	if r.overlaps() == 0 {
		t.Error("no overlap: the judge sees nothing")
	}
}
