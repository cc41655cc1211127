package lock

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const exclusionProcesses = 3

// excludesAtRandom has callers of several processes acquire few keys in every way at once: modes, sets, fair or not, tried
// or waited for, with contexts that end early, and with every end that a lock can have. The operating system judges
// whether two of them meet. Afterwards every key is free. One process has a crowd besides, on one key of its fair Locker:
// one grant must not be given to several calls that share a statement.
func excludesAtRandom(t *testing.T, v *env) {
	overlaps, acquired := v.excludeAtRandom(t, excludesRandomly)
	for _, line := range overlaps {
		t.Error(line)
	}
	for mode, n := range acquired {
		if n == 0 {
			t.Errorf("nothing was acquired in mode %d: this shows nothing", mode)
		}
	}
	t.Logf("acquired by mode: %v", acquired)
}

// controlEntersUnasked is excludesAtRandom with callers that take a refusal for a grant.
func controlEntersUnasked(t *testing.T, v *env) {
	if overlaps, acquired := v.excludeAtRandom(t, entersUnasked); len(overlaps) == 0 {
		t.Errorf("no overlap among %v acquisitions: the judge sees nothing", acquired)
	}
}

// lateSection is the time for which a holder stayed in a section after the end of its lock. Others may enter then.
type lateSection struct {
	key      string
	from, to int64
}

// excludeAtRandom runs the processes, and returns what the checker saw, and how much was acquired in each mode.
func (v *env) excludeAtRandom(t *testing.T, mode string) (overlaps []string, acquired [3]int64) {
	lasts := 2 * time.Second
	if soak := os.Getenv(suite.EnvSoak); soak != "" {
		lasts = time.Minute
		if d, err := time.ParseDuration(soak); err == nil {
			lasts = d
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts+time.Minute)
	defer cancel()
	dir := t.TempDir()
	var mu sync.Mutex
	var met []string
	var late []lateSection
	var all sync.WaitGroup
	crowd := "k0" // of one process
	for range exclusionProcesses {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), holderDSN+"="+v.dsn, holderKind+"="+string(v.e.Kind), holderMode+"="+mode,
			exclusionDir+"="+dir, exclusionFor+"="+lasts.String(), exclusionCrowd+"="+crowd)
		crowd = ""
		c := suite.StartChild(t, cmd)
		t.Cleanup(c.Kill)
		all.Go(func() {
			for c.Lines.Scan() {
				line := c.Lines.Text()
				word, rest, _ := strings.Cut(line, " ")
				mu.Lock()
				switch word {
				case "overlap":
					met = append(met, line)
				case "late":
					var s lateSection
					_, _ = fmt.Sscan(rest, &s.key, &s.from, &s.to)
					late = append(late, s)
				case "error":
					t.Error(line)
				case "done":
					var n [3]int64
					_, _ = fmt.Sscan(rest, &n[0], &n[1], &n[2])
					for i := range n {
						acquired[i] += n[i]
					}
				}
				mu.Unlock()
				if word == "done" {
					return
				}
			}
			t.Error("a process ended early")
		})
	}
	all.Wait()
	for _, line := range met {
		var key string
		var at int64
		_, _ = fmt.Sscan(strings.TrimPrefix(line, "overlap "), &key, &at)
		if !excused(late, at) {
			overlaps = append(overlaps, line)
		}
	}
	if mode == excludesRandomly {
		v.allAreFree(t)
	}
	return overlaps, acquired
}

// excused tells whether a holder was late at that time.
func excused(late []lateSection, at int64) bool {
	for _, s := range late {
		if s.from <= at && at <= s.to {
			return true
		}
	}
	return false
}

// allAreFree acquires every key, while the processes live that have used them.
func (v *env) allAreFree(t *testing.T) {
	l := v.process(t, LeaseOptions{TTL: exclusionTTL})
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	for i := range exclusionKeys {
		o := exclusionOp{keys: []string{fmt.Sprint("k", i)}, wait: 40 * time.Second}
		lock, err := o.acquire(ctx, l)
		if err != nil {
			t.Errorf("a key that nobody uses: %v", err)
			continue
		}
		suite.Release(t, lock)
	}
}
