package programs

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	envSeed    = "DBLOCK_SEED"
	envSoak    = "DBLOCK_SOAK"
	envProgram = "DBLOCK_PROGRAM" // a program as a failed run has printed it

	// What depends on timing fails in some runs only. A smaller program is dropped when it has
	// passed as often as this.
	triesToReproduce = 12
	triesToShrink    = 4
	replays          = 30
	shrinkFor        = time.Minute
)

// verdict is what the checkers say of one run. kind is the kind of the first violation, and empty
// if there is none.
type verdict struct {
	kind  string
	lines []string
	stats map[string]int
}

// add adds a violation. The kinds that are added first are the worse ones.
func (v *verdict) add(kind, format string, args ...any) {
	v.kind = cmp.Or(v.kind, kind)
	v.lines = append(v.lines, kind+": "+fmt.Sprintf(format, args...))
}

func (v *verdict) String() string {
	const most = 40
	if len(v.lines) > most {
		return strings.Join(v.lines[:most], "\n") + fmt.Sprintf("\nand %d lines more", len(v.lines)-most)
	}
	return strings.Join(v.lines, "\n")
}

// checker draws programs and runs them.
type checker[P any] struct {
	draw func(*rapid.T) P
	run  func(P) verdict

	failed   *verdict  // of the smallest program that failed so far
	at       time.Time // when the first one failed
	smallest P
	runs     int
	stats    map[string]int
}

var oneAtATime sync.Mutex // rapid keeps its options in flags

// check runs programs for a while, or as long as a soak test takes, and fails with the smallest
// program that fails.
func check[P any](t *testing.T, lasts time.Duration, draw func(*rapid.T) P, run func(P) verdict) {
	c := &checker[P]{draw: draw, run: run, stats: map[string]int{}}
	if text := os.Getenv(envProgram); text != "" {
		c.replay(t, text)
		return
	}
	seed := seedOf(t.Name())
	if d, err := time.ParseDuration(os.Getenv(envSoak)); err == nil {
		lasts = d
	}
	began := time.Now()
	first := seed
	for ; c.failed == nil && (time.Since(began) < lasts || seed == first); seed++ {
		c.once(seed)
	}
	t.Logf("%s=%d: %d runs of %d programs in %v: %v", envSeed, first, c.runs, seed-first, time.Since(began).Round(time.Millisecond), c.stats)
	if c.failed != nil {
		t.Errorf("%s=%d: after %v: %s\nthe smallest program that failed so, to run again with %s:\n%s", envSeed, seed-1,
			c.at.Sub(began).Round(time.Second), c.failed, envProgram, text(c.smallest))
	}
}

// seedOf is the seed of a test, unless the environment says another one.
func seedOf(name string) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64); err == nil {
		return n
	}
	if os.Getenv(envSoak) != "" {
		return uint64(time.Now().UnixNano())
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64() % 1_000_000
}

func text(p any) string {
	b, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// oneOf draws one of some values.
func oneOf[T any](t *rapid.T, label string, of ...T) T { return rapid.SampledFrom(of).Draw(t, label) }

// once draws the program of a seed and runs it. If it fails rapid looks for a smaller one that
// fails in the same way.
func (c *checker[P]) once(seed uint64) {
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	for name, value := range map[string]string{
		"seed": strconv.FormatUint(max(seed, 1), 10), "checks": "1", "nofailfile": "true", "shrinktime": shrinkFor.String(),
	} {
		if err := flag.Set("rapid."+name, value); err != nil {
			panic(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rapid.Check(silent{}, c.property)
	}()
	<-done
}

func (c *checker[P]) property(t *rapid.T) {
	p := c.draw(t)
	tries, kind := 1, ""
	if c.failed != nil && time.Since(c.at) > shrinkFor && text(p) != text(c.smallest) {
		return // rapid would go on for longer
	}
	if c.failed != nil {
		tries, kind = triesToShrink, c.failed.kind
		if text(p) == text(c.smallest) {
			tries = triesToReproduce
		}
	}
	for range tries {
		got := c.run(p)
		c.runs++
		for name, n := range got.stats {
			c.stats[name] += n
		}
		if got.kind != "" && (kind == "" || got.kind == kind) {
			if c.failed == nil {
				c.at = time.Now()
			}
			c.failed, c.smallest = &got, p
			t.Fatal(got.kind)
		}
	}
}

// replay runs a program that a failed run has printed, until it fails.
func (c *checker[P]) replay(t *testing.T, text string) {
	var p P
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	for n := range replays {
		if got := c.run(p); got.kind != "" {
			t.Fatalf("in run %d of %d: %s", n+1, replays, &got)
		}
	}
	t.Logf("it passed %d times", replays)
}

// silent is a test whose output is dropped: check says what is worth to know.
type silent struct{}

func (silent) Helper()               {}
func (silent) Name() string          { return "" }
func (silent) Logf(string, ...any)   {}
func (silent) Log(...any)            {}
func (silent) Skipf(string, ...any)  { runtime.Goexit() }
func (silent) Skip(...any)           { runtime.Goexit() }
func (silent) SkipNow()              { runtime.Goexit() }
func (silent) Errorf(string, ...any) {}
func (silent) Error(...any)          {}
func (silent) Fatalf(string, ...any) { runtime.Goexit() }
func (silent) Fatal(...any)          { runtime.Goexit() }
func (silent) FailNow()              { runtime.Goexit() }
func (silent) Fail()                 {}
func (silent) Failed() bool          { return false }
