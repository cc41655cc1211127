package lock

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// manyProcessesNeverMeet counts who is inside, in memory, and sees the tokens grow.
func manyProcessesNeverMeet(t *testing.T, v Place) {
	const processes, callers, rounds, keys = 3, 6, 20, 2
	var inside [keys]guarded
	var crowd sync.WaitGroup
	for range processes {
		l := v.process(t, LeaseOptions{Poll: 10 * time.Millisecond})
		for c := range callers {
			crowd.Go(func() {
				for range rounds {
					lock, err := l.Acquire(suite.Soon(t), fmt.Sprint("k", c%keys))
					if err != nil {
						t.Error(err)
						return
					}
					token := inside[c%keys].after(lock)
					if fault := inside[c%keys].enter(token); fault != "" {
						t.Error(fault)
					}
					inside[c%keys].leave()
					suite.Release(t, lock)
				}
			})
		}
	}
	crowd.Wait()
	for i := range inside {
		if want := processes * callers / keys * rounds; inside[i].entered != want {
			t.Errorf("%d entered, want %d", inside[i].entered, want)
		}
	}
}

// controlMeets does the same without a lock: the counter sees it.
func controlMeets(t *testing.T, _ Place) {
	var inside guarded
	if fault := inside.enter(1); fault != "" {
		t.Fatal(fault)
	}
	if inside.enter(2) == "" {
		t.Error("two are inside, and nobody has seen it")
	}
	inside.leave()
	inside.leave()
	if inside.enter(2) == "" {
		t.Error("a token that has not grown was not seen")
	}
}

// guarded counts who is inside at once.
type guarded struct {
	mu      sync.Mutex
	inside  int
	entered int
	token   int64
}

// after is the token of a lock; of one that has none the next that would do.
func (g *guarded) after(lock *dblock.Lock) int64 {
	if f, ok := lock.Fence(); ok {
		return f.Token
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.token + 1
}

func (g *guarded) enter(token int64) (fault string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside++
	g.entered++
	before := g.token
	g.token = max(g.token, token)
	if g.inside > 1 {
		return fmt.Sprintf("%d are inside", g.inside)
	}
	if token <= before {
		return fmt.Sprintf("token %d after %d", token, before)
	}
	return ""
}

func (g *guarded) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
}
