package lock

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// excludesAtRandom has callers of several processes acquire few keys in every way at once: modes,
// sets, fair or not, tried or waited for, with contexts that end early, and with every end that a
// lock can have. Locks of the operating system show whether two of them meet. Afterwards every key
// is free.
func excludesAtRandom(t *testing.T, v *env) {
	overlaps, acquired := v.excludeAtRandom(t, excludesRandomly)
	assert.Empty(t, overlaps)
	assert.NotContains(t, acquired[:], int64(0), "acquired by mode")
	l := v.process(t, LeaseOptions{TTL: exclusionTTL})
	for i := range exclusionKeys { // while the processes live that have used them
		suite.IsFree(t, l, fmt.Sprint("k", i))
	}
}

// controlEntersUnasked is excludesAtRandom with callers that take a refusal for a grant.
func controlEntersUnasked(t *testing.T, v *env) {
	overlaps, acquired := v.excludeAtRandom(t, entersUnasked)
	assert.NotEmpty(t, overlaps, "among %v acquisitions", acquired)
}

// lateSection is the time for which a holder stayed in a section after the end of its lock. Others
// may enter then.
type lateSection struct{ from, to int64 }

func excused(late []lateSection, at int64) bool {
	return slices.ContainsFunc(late, func(s lateSection) bool { return s.from <= at && at <= s.to })
}

// excludeAtRandom returns the overlaps that no late holder excuses, and how much was acquired in
// each mode.
func (v *env) excludeAtRandom(t *testing.T, mode string) (overlaps []string, acquired [3]int64) {
	lasts := cmp.Or(os.Getenv(suite.EnvSoak), "2s")
	if _, err := time.ParseDuration(lasts); err != nil {
		lasts = "1m"
	}
	dir, crowd := t.TempDir(), "k0" // one process has a crowd besides, on one key of its fair Locker
	var mu sync.Mutex
	var late []lateSection
	var all sync.WaitGroup
	for range 3 {
		c := v.startHolder(t, t.Context(), mode, exclusionDir+"="+dir, exclusionFor+"="+lasts, exclusionCrowd+"="+crowd)
		crowd = ""
		all.Go(func() {
			for c.Lines.Scan() {
				line := c.Lines.Text()
				word, rest, _ := strings.Cut(line, " ")
				mu.Lock()
				switch word {
				case "overlap":
					overlaps = append(overlaps, line)
				case "late":
					var s lateSection
					_, _ = fmt.Sscan(rest, &s.from, &s.to)
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
	return slices.DeleteFunc(overlaps, func(line string) bool {
		var at int64
		_, _ = fmt.Sscanf(line, "overlap %d", &at)
		return excused(late, at)
	}), acquired
}

// sections are critical sections: entering one locks its files without waiting. If that fails,
// another holder is inside.
type sections struct{ dir string }

var errOverlap = errors.New("another holder is in the section")

// section is the files of one that was entered.
type section []*os.File

func (s section) leave() {
	for _, f := range s {
		_ = f.Close()
	}
}

// enter enters the section of a lock: of all its keys, or of as many permits as it holds.
func (j sections) enter(o exclusionOp) (s section, err error) {
	if o.mode == dblock.Permits {
		return j.enterPermits(o.keys[0], o.permits)
	}
	for _, key := range o.keys {
		if err := j.lock(&s, key, o.mode == dblock.Shared, false); err != nil {
			s.leave()
			return nil, err
		}
	}
	return s, nil
}

// lock adds a locked file to a section.
func (j sections) lock(s *section, name string, shared, wait bool) error {
	f, err := os.OpenFile(filepath.Join(j.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	locked, err := suite.Flock(f, shared, wait)
	if err != nil || !locked {
		return errors.Join(err, f.Close(), errOverlap)
	}
	*s = append(*s, f)
	return nil
}

// enterPermits locks n of a semaphore's files. One process at a time looks for them, so that a free
// one stays free.
func (j sections) enterPermits(key string, n int) (s section, err error) {
	var turn section
	if err := j.lock(&turn, key+".turn", false, true); err != nil {
		return nil, err
	}
	defer turn.leave()
	for i := 0; i < exclusionLimit && len(s) < n; i++ {
		if err = j.lock(&s, fmt.Sprint(key, ".permit", i), false, false); err != nil && !errors.Is(err, errOverlap) {
			break
		}
	}
	if len(s) < n {
		s.leave()
		return nil, err
	}
	return s, nil
}
