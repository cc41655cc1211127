package conformance

import (
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
)

// guardedValue is the state of a key that guards a value. Where members are declared dead, a lock may be granted before its
// holder knows; then exclusive is false, nobody is counted, and all rests on tokens and guards.
type guardedValue struct {
	exclusive bool
	token     int64 // the largest
	writer    int64 // that of the last one who had it alone
	held      bool  // by that one
	readers   int
	value     int64
}

func (v guardedValue) next(s step) []state {
	switch {
	case s.what == granted && s.mode == dblock.Shared:
		return v.enter(s)
	case s.what == granted:
		return v.grant(s)
	case s.what == left && s.mode == dblock.Shared:
		return v.exit()
	case s.what == left:
		v.held = v.held && v.writer != s.token
		return []state{v}
	case s.what == read && s.token > v.writer && !(v.exclusive && v.held) && v.value == s.was:
		return []state{v}
	case s.what == updated || s.what == unknown:
		return v.update(s)
	}
	return nil
}

// enter lets a reader in. Readers have one token, larger than that of the last writer; it may grow while they read, by one who
// gave up waiting for them.
func (v guardedValue) enter(s step) []state {
	if s.token < v.token || s.token <= v.writer || v.exclusive && v.held {
		return nil
	}
	v.token = s.token
	if v.exclusive {
		v.readers++
	}
	return []state{v}
}

func (v guardedValue) exit() []state {
	if !v.exclusive {
		return []state{v}
	}
	if v.readers == 0 {
		return nil
	}
	v.readers--
	return []state{v}
}

func (v guardedValue) grant(s step) []state {
	if s.token <= v.token || v.exclusive && (v.held || v.readers > 0) {
		return nil
	}
	v.token, v.writer, v.held = s.token, s.token, true
	return []state{v}
}

// update writes where nobody was let in since, to write or to read.
func (v guardedValue) update(s step) []state {
	after := v
	after.value = s.now
	possible := v.token == s.token && v.value == s.was
	switch {
	case possible && s.what == updated:
		return []state{after}
	case possible:
		return []state{v, after}
	case s.what == unknown:
		return []state{v}
	}
	return nil
}

// forgedUpdates are histories of writers with one step that no lock would have done.
func (h *history) forgedUpdates(exclusive bool) map[string][]porcupine.Operation {
	grant, _, some := h.first(func(s step) bool { return s.what == granted && s.mode == dblock.Exclusive })
	write, at, wrote := h.first(func(s step) bool { return s.what == updated })
	if !some || !wrote {
		return nil
	}
	lost, old, latest := slices.Clone(h.steps), grant, step{what: granted, key: grant.key, token: math.MaxInt64}
	next := latest
	next.token--
	old.token--
	overtaken := write
	overtaken.token = 1
	write.was = -1
	lost[at].Input = write
	forged := map[string][]porcupine.Operation{
		"a token for the second time":         h.and(grant),
		"a token smaller than the one before": h.and(old),
		"an update by an older holder":        h.and(overtaken),
		"an update of what was not read":      lost,
	}
	if exclusive {
		forged["two at once"] = h.and(next, latest)
	}
	return forged
}

// forgedReads are those and histories of readers and writers.
func (h *history) forgedReads(exclusive bool) map[string][]porcupine.Operation {
	enter, _, some := h.first(func(s step) bool { return s.what == granted && s.mode == dblock.Shared })
	look, at, looked := h.first(func(s step) bool { return s.what == read })
	forged := h.forgedUpdates(exclusive)
	if !some || !looked || forged == nil {
		return nil
	}
	writer := step{what: granted, key: enter.key, token: math.MaxInt64 - 1}
	early, late := enter, enter
	early.token, late.token = writer.token-1, writer.token+1
	stale := slices.Clone(h.steps)
	look.was = -1
	stale[at].Input = look
	write, _, _ := h.first(func(s step) bool { return s.what == updated })
	look.key, look.token, look.was = write.key, 1, 0 // of a key that nobody has written to it would be right
	leaves := writer
	leaves.what = left
	forged["a reader with a writer's token"] = h.and(writer, leaves, step{what: granted, key: enter.key, mode: dblock.Shared, token: writer.token})
	forged["a reader with a token older than a writer's"] = h.and(writer, leaves, early)
	forged["a writer with the readers' token"] = h.and(late, step{what: left, key: late.key, mode: dblock.Shared, token: late.token},
		step{what: granted, key: late.key, token: late.token})
	forged["a read of what was never written"] = stale
	forged["a read by one from before a writer"] = h.and(look)
	if exclusive {
		forged["a writer beside a reader"] = h.and(early, writer)
		forged["a reader beside a writer"] = h.and(writer, late)
	}
	return forged
}
