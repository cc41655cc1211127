package conformance

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
)

// A history is what each caller asked for, what it was told, and when. It is right if there is an order of
// its steps, one that the times allow, in which each of them is what a lock would do.
type history struct {
	began time.Time
	mu    sync.Mutex
	steps []porcupine.Operation
}

// what is the kind of a step.
type what string

const (
	granted  what = "granted"
	left     what = "left"     // the caller will not use the lock any more
	updated  what = "updated"  // the value, from what was read under the lock
	unknown  what = "unknown"  // an update whose answer was lost
	read     what = "read"     // the value, under a lock that is shared
	believed what = "believed" // a semaphore had that number of permits when some were asked for
	limited  what = "limited"  // it was given that number
	doubtful what = "doubtful" // the same, and the answer was lost
)

// step is one of them. A call that was refused, or that is not known to have been granted, is none: all it may have
// done is to let the token grow.
type step struct {
	what     what
	key      string
	mode     dblock.Mode
	token    int64
	was, now int64

	permits, limit int
}

// never is when a step ended that may yet take effect.
const never = math.MaxInt64

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) note(client int, from, to int64, s step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, porcupine.Operation{ClientId: client, Input: s, Call: from, Return: to})
}

// state is what a key is in; next are the states that a step may lead to, none: it cannot have happened.
type state interface{ next(s step) []state }

// modelOf is of keys that all begin in the same state.
func modelOf(first state) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: byKey,
		Init:      func() []any { return []any{first} },
		Step: func(now, input, _ any) []any {
			var states []any
			for _, next := range now.(state).next(input.(step)) {
				states = append(states, next)
			}
			return states
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}

func byKey(steps []porcupine.Operation) [][]porcupine.Operation {
	keys := make(map[string][]porcupine.Operation)
	for _, s := range steps {
		key := s.Input.(step).key
		keys[key] = append(keys[key], s)
	}
	var all [][]porcupine.Operation
	for _, steps := range keys {
		all = append(all, steps)
	}
	return all
}

// isRight tells whether there is an order in which all steps make sense.
func (h *history) isRight(t *testing.T, first state) bool {
	t.Helper()
	got := porcupine.CheckOperationsTimeout(modelOf(first), h.steps, time.Minute)
	if got == porcupine.Unknown {
		t.Errorf("no order was found in a minute, nor that there is none, for %d steps", len(h.steps))
	}
	return got == porcupine.Ok
}

func (h *history) count(w what) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.steps {
		if s.Input.(step).what == w {
			n++
		}
	}
	return n
}

// first is the first step of a kind that was noted, and where; false: there is none.
func (h *history) first(of func(step) bool) (s step, at int, found bool) {
	at = slices.IndexFunc(h.steps, func(o porcupine.Operation) bool { return of(o.Input.(step)) })
	if at < 0 {
		return step{}, at, false
	}
	return h.steps[at].Input.(step), at, true
}

// and is the history with some steps more, one after the other, when all others had ended.
func (h *history) and(more ...step) []porcupine.Operation {
	steps, end := slices.Clone(h.steps), h.now()
	for i, s := range more {
		steps = append(steps, porcupine.Operation{Input: s, Call: end + int64(2*i), Return: end + int64(2*i) + 1})
	}
	return steps
}

// forgeriesAreNoticed is the control: histories with one step that no lock would have done are wrong.
func (h *history) forgeriesAreNoticed(t *testing.T, first state, forged map[string][]porcupine.Operation) {
	t.Helper()
	if len(forged) == 0 {
		t.Error("too little has happened: this shows nothing")
	}
	for name, steps := range forged {
		if (&history{began: h.began, steps: steps}).isRight(t, first) {
			t.Errorf("%s went unnoticed: this test could not fail", name)
		}
	}
}

// wrong shows the steps of one key that make no sense, in the order of their tokens.
func (h *history) wrong(first state) string {
	for _, steps := range byKey(h.steps) {
		if porcupine.CheckOperations(modelOf(first), steps) {
			continue
		}
		slices.SortStableFunc(steps, func(a, b porcupine.Operation) int {
			return cmp.Or(cmp.Compare(a.Input.(step).token, b.Input.(step).token), cmp.Compare(a.Call, b.Call))
		})
		var all strings.Builder
		for _, s := range steps {
			fmt.Fprintf(&all, "process %d, from %v to %v: %+v\n", s.ClientId, time.Duration(s.Call), time.Duration(s.Return), s.Input)
		}
		return all.String()
	}
	return ""
}

func (h *history) String() string {
	seen := make(map[what]int)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.steps {
		seen[s.Input.(step).what]++
	}
	return fmt.Sprintf("%d steps: %v", len(h.steps), seen)
}
