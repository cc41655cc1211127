package suite

import (
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
)

// GuardedValue is the state of a key that guards a value. Where members are declared dead, a lock may be granted before its
// holder knows; then exclusive is false, nobody is counted, and all rests on tokens and guards.
type GuardedValue struct {
	Exclusive bool
	token     int64 // the largest
	writer    int64 // that of the last one who had it alone
	held      bool  // by that one
	readers   int
	value     int64
}

func (v GuardedValue) Next(s Step) []State {
	switch {
	case s.What == Granted && s.Mode == dblock.Shared:
		return v.enter(s)
	case s.What == Granted:
		return v.grant(s)
	case s.What == Left && s.Mode == dblock.Shared:
		return v.exit()
	case s.What == Left:
		v.held = v.held && v.writer != s.Token
		return []State{v}
	case s.What == Read && s.Token > v.writer && !(v.Exclusive && v.held) && v.value == s.Was:
		return []State{v}
	case s.What == Updated || s.What == Unknown:
		return v.update(s)
	}
	return nil
}

// enter lets a reader in. Readers have one token, larger than that of the last writer; it may grow while they read, by one who
// gave up waiting for them.
func (v GuardedValue) enter(s Step) []State {
	if s.Token < v.token || s.Token <= v.writer || v.Exclusive && v.held {
		return nil
	}
	v.token = s.Token
	if v.Exclusive {
		v.readers++
	}
	return []State{v}
}

func (v GuardedValue) exit() []State {
	if !v.Exclusive {
		return []State{v}
	}
	if v.readers == 0 {
		return nil
	}
	v.readers--
	return []State{v}
}

func (v GuardedValue) grant(s Step) []State {
	if s.Token <= v.token || v.Exclusive && (v.held || v.readers > 0) {
		return nil
	}
	v.token, v.writer, v.held = s.Token, s.Token, true
	return []State{v}
}

// update writes where nobody was let in since, to write or to read.
func (v GuardedValue) update(s Step) []State {
	after := v
	after.value = s.Now
	possible := v.token == s.Token && v.value == s.Was
	switch {
	case possible && s.What == Updated:
		return []State{after}
	case possible:
		return []State{v, after}
	case s.What == Unknown:
		return []State{v}
	}
	return nil
}

// ForgedUpdates are histories of writers with one step that no lock would have done.
func (h *History) ForgedUpdates(exclusive bool) map[string][]porcupine.Operation {
	grant, _, some := h.First(func(s Step) bool { return s.What == Granted && s.Mode == dblock.Exclusive })
	write, at, wrote := h.First(func(s Step) bool { return s.What == Updated })
	if !some || !wrote {
		return nil
	}
	lost, old, latest := slices.Clone(h.Steps), grant, Step{What: Granted, Key: grant.Key, Token: math.MaxInt64}
	next := latest
	next.Token--
	old.Token--
	overtaken := write
	overtaken.Token = 1
	write.Was = -1
	lost[at].Input = write
	forged := map[string][]porcupine.Operation{
		"a token for the second time":         h.And(grant),
		"a token smaller than the one before": h.And(old),
		"an update by an older holder":        h.And(overtaken),
		"an update of what was not read":      lost,
	}
	if exclusive {
		forged["two at once"] = h.And(next, latest)
	}
	return forged
}

// ForgedReads are those and histories of readers and writers.
func (h *History) ForgedReads(exclusive bool) map[string][]porcupine.Operation {
	enter, _, some := h.First(func(s Step) bool { return s.What == Granted && s.Mode == dblock.Shared })
	look, at, looked := h.First(func(s Step) bool { return s.What == Read })
	forged := h.ForgedUpdates(exclusive)
	if !some || !looked || forged == nil {
		return nil
	}
	writer := Step{What: Granted, Key: enter.Key, Token: math.MaxInt64 - 1}
	early, late := enter, enter
	early.Token, late.Token = writer.Token-1, writer.Token+1
	stale := slices.Clone(h.Steps)
	look.Was = -1
	stale[at].Input = look
	write, _, _ := h.First(func(s Step) bool { return s.What == Updated })
	look.Key, look.Token, look.Was = write.Key, 1, 0 // of a key that nobody has written to it would be right
	leaves := writer
	leaves.What = Left
	forged["a reader with a writer's token"] = h.And(writer, leaves, Step{What: Granted, Key: enter.Key, Mode: dblock.Shared, Token: writer.Token})
	forged["a reader with a token older than a writer's"] = h.And(writer, leaves, early)
	forged["a writer with the readers' token"] = h.And(late, Step{What: Left, Key: late.Key, Mode: dblock.Shared, Token: late.Token},
		Step{What: Granted, Key: late.Key, Token: late.Token})
	forged["a read of what was never written"] = stale
	forged["a read by one from before a writer"] = h.And(look)
	if exclusive {
		forged["a writer beside a reader"] = h.And(early, writer)
		forged["a reader beside a writer"] = h.And(writer, late)
	}
	return forged
}
