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
)

// A history is what each caller asked for, what it was told, and when. It is right if there is an order of
// its steps, one that the times allow, in which each of them is what a lock would do that guards a value.
type history struct {
	began time.Time
	mu    sync.Mutex
	steps []porcupine.Operation
}

// what is the kind of a step.
type what string

const (
	granted what = "granted"
	left    what = "left"    // the caller will not use the lock any more
	updated what = "updated" // the value, from what was read under the lock
	unknown what = "unknown" // an update whose answer was lost
)

// step is one of them. A call that was refused, or that is not known to have been granted, is none: all it may have
// done is to let the token grow.
type step struct {
	what     what
	key      string
	token    int64
	was, now int64
}

// never is when a step ended that may yet take effect.
const never = math.MaxInt64

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) note(client int, from, to int64, s step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, porcupine.Operation{ClientId: client, Input: s, Call: from, Return: to})
}

// guardedValue is the state of one key.
type guardedValue struct {
	token int64
	held  bool
	value int64
}

// next is the states that a step may lead to; none: it cannot have happened. Where members are declared dead, a lock
// may be granted before its holder knows; then exclusive is false, and all rests on the token.
func (v guardedValue) next(s step, exclusive bool) []guardedValue {
	ours := v.token == s.token
	after := v
	after.value = s.now
	switch {
	case s.what == granted && s.token > v.token && !(exclusive && v.held):
		return []guardedValue{{s.token, true, v.value}}
	case s.what == left && ours:
		return []guardedValue{{v.token, false, v.value}}
	case s.what == left:
		return []guardedValue{v}
	case s.what == updated && ours && v.value == s.was:
		return []guardedValue{after}
	case s.what == unknown && ours && v.value == s.was:
		return []guardedValue{v, after}
	case s.what == unknown:
		return []guardedValue{v}
	default:
		return nil
	}
}

func fencedLock(exclusive bool) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: byKey,
		Init:      func() []any { return []any{guardedValue{}} },
		Step: func(state, input, _ any) []any {
			var states []any
			for _, next := range state.(guardedValue).next(input.(step), exclusive) {
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
func (h *history) isRight(t *testing.T, exclusive bool) bool {
	t.Helper()
	got := porcupine.CheckOperationsTimeout(fencedLock(exclusive), h.steps, time.Minute)
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

// forgeriesAreNoticed is the control: histories with one step that no lock would have done are wrong.
func (h *history) forgeriesAreNoticed(t *testing.T, exclusive bool) {
	t.Helper()
	end := h.now()
	find := func(w what) (at int) {
		return slices.IndexFunc(h.steps, func(s porcupine.Operation) bool { return s.Input.(step).what == w })
	}
	first, update := find(granted), find(updated)
	if first < 0 || update < 0 {
		t.Error("nothing was granted, or nothing updated: this shows nothing")
		return
	}
	grant, write := h.steps[first].Input.(step), h.steps[update].Input.(step)
	after := func(s step) []porcupine.Operation {
		return append(slices.Clone(h.steps), porcupine.Operation{Input: s, Call: end, Return: end + 1})
	}
	lost := slices.Clone(h.steps)
	write.was = -1
	lost[update].Input = write
	forged := map[string][]porcupine.Operation{
		"a token for the second time":         after(grant),
		"a token smaller than the one before": after(step{what: granted, key: grant.key, token: grant.token - 1}),
		"an update by an older holder":        after(step{what: updated, key: write.key, token: 1}),
		"an update of what was not read":      lost,
	}
	if exclusive {
		held := after(step{what: granted, key: grant.key, token: math.MaxInt64 - 1})
		forged["two at once"] = append(held, porcupine.Operation{
			Input: step{what: granted, key: grant.key, token: math.MaxInt64}, Call: end + 2, Return: end + 3,
		})
	}
	for name, steps := range forged {
		if (&history{began: h.began, steps: steps}).isRight(t, exclusive) {
			t.Errorf("%s went unnoticed: this test could not fail", name)
		}
	}
}

// wrong shows the steps of one key that make no sense, in the order of their tokens.
func (h *history) wrong(exclusive bool) string {
	for _, steps := range byKey(h.steps) {
		if porcupine.CheckOperations(fencedLock(exclusive), steps) {
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
	return fmt.Sprintf("%d grants, %d updates, %d more of unknown outcome", h.count(granted), h.count(updated), h.count(unknown))
}
