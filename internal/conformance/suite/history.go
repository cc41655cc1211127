package suite

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
)

// A History is what each caller asked for, what it was told, and when. It is right if there is an
// order of its steps, one that the times allow, in which each of them is what a lock would do.
type History struct {
	Began time.Time
	mu    sync.Mutex
	Steps []porcupine.Operation
}

// What is the kind of a step.
type What string

const (
	Granted  What = "granted"
	Left     What = "left"     // the caller will not use the lock any more
	Updated  What = "updated"  // the value, from what was read under the lock
	Unknown  What = "unknown"  // an update whose answer was lost
	Read     What = "read"     // the value, under a lock that is shared
	Believed What = "believed" // a semaphore had that number of permits when some were asked for
	Limited  What = "limited"  // it was given that number
	Doubtful What = "doubtful" // the same, and the answer was lost
)

// Step is one of them. A call that was refused, or that is not known to have been granted, is none:
// all it may have done is to let the token grow.
type Step struct {
	What     What
	Key      string
	Mode     dblock.Mode
	Token    int64
	Was, Now int64

	Permits, Limit int
}

// Never is when a step ended that may yet take effect.
const Never = math.MaxInt64

func (h *History) Now() int64 { return int64(time.Since(h.Began)) }

func (h *History) Note(client int, from, to int64, s Step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Steps = append(h.Steps, porcupine.Operation{ClientId: client, Input: s, Call: from, Return: to})
}

// Grows waits for so many more steps of a kind.
func (h *History) Grows(ctx context.Context, w What, n int) {
	for until := h.Count(w) + n; h.Count(w) < until && ctx.Err() == nil; {
		time.Sleep(5 * time.Millisecond)
	}
}

func (h *History) counts() map[What]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := make(map[What]int)
	for _, s := range h.Steps {
		seen[s.Input.(Step).What]++
	}
	return seen
}

func (h *History) Count(w What) (n int) { return h.counts()[w] }

func (h *History) String() string { return fmt.Sprintf("%d steps: %v", len(h.Steps), h.counts()) }

// State is what a key is in; next are the states that a step may lead to, none: it cannot have
// happened.
type State interface{ Next(s Step) []State }

// modelOf is of keys that all begin in the same state.
func modelOf(first State) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: byKey,
		Init:      func() []any { return []any{first} },
		Step: func(now, input, _ any) []any {
			var states []any
			for _, next := range now.(State).Next(input.(Step)) {
				states = append(states, next)
			}
			return states
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}

func byKey(steps []porcupine.Operation) (all [][]porcupine.Operation) {
	keys := make(map[string][]porcupine.Operation)
	for _, s := range steps {
		key := s.Input.(Step).Key
		keys[key] = append(keys[key], s)
	}
	for _, steps := range keys {
		all = append(all, steps)
	}
	return all
}

// IsRight tells whether there is an order in which all steps make sense.
func (h *History) IsRight(t *testing.T, first State) bool {
	t.Helper()
	got := porcupine.CheckOperationsTimeout(modelOf(first), h.Steps, time.Minute)
	assert.NotEqual(t, porcupine.Unknown, got, "no order of %d steps was found in a minute, nor that there is none", len(h.Steps))
	return got == porcupine.Ok
}

// First is the first step of a kind that was noted, and where; false: there is none.
func (h *History) First(of func(Step) bool) (s Step, at int, found bool) {
	at = slices.IndexFunc(h.Steps, func(o porcupine.Operation) bool { return of(o.Input.(Step)) })
	if at < 0 {
		return Step{}, at, false
	}
	return h.Steps[at].Input.(Step), at, true
}

// And is the history with some steps more, one after the other, when all others had ended.
func (h *History) And(more ...Step) []porcupine.Operation {
	steps, end := slices.Clone(h.Steps), h.Now()
	for i, s := range more {
		steps = append(steps, porcupine.Operation{Input: s, Call: end + int64(2*i), Return: end + int64(2*i) + 1})
	}
	return steps
}

// ForgeriesAreNoticed is the control: histories with one step that no lock would have done are
// wrong.
func (h *History) ForgeriesAreNoticed(t *testing.T, first State, forged map[string][]porcupine.Operation) {
	t.Helper()
	assert.NotEmpty(t, forged, "too little has happened: this shows nothing")
	for name, steps := range forged {
		assert.False(t, (&History{Began: h.Began, Steps: steps}).IsRight(t, first), "%s went unnoticed: this test could not fail", name)
	}
}

// Wrong shows the steps of one key that make no sense, in the order of their tokens.
func (h *History) Wrong(first State) string {
	for _, steps := range byKey(h.Steps) {
		if porcupine.CheckOperations(modelOf(first), steps) {
			continue
		}
		slices.SortStableFunc(steps, func(a, b porcupine.Operation) int {
			return cmp.Or(cmp.Compare(a.Input.(Step).Token, b.Input.(Step).Token), cmp.Compare(a.Call, b.Call))
		})
		var all strings.Builder
		for _, s := range steps {
			fmt.Fprintf(&all, "process %d, from %v to %v: %+v\n", s.ClientId, time.Duration(s.Call), time.Duration(s.Return), s.Input)
		}
		return all.String()
	}
	return ""
}
