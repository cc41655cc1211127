package suite

import (
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
)

// GuardedValue is the state of a key that guards a value. Where members are declared dead, a lock
// may be granted before its holder knows; then exclusive is false, nobody is counted, and all rests
// on tokens and guards.
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

// enter lets a reader in. Readers have one token, larger than that of the last writer; it may grow
// while they read, by one who gave up waiting for them.
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

// with is the step with some fields changed.
func (s Step) with(change func(s *Step)) Step {
	change(&s)
	return s
}

// ForgedUpdates are histories of writers with one step that no lock would have done.
func (h *History) ForgedUpdates(exclusive bool) map[string][]porcupine.Operation {
	grant, _, some := h.First(func(s Step) bool { return s.What == Granted && s.Mode == dblock.Exclusive })
	write, at, wrote := h.First(func(s Step) bool { return s.What == Updated })
	if !some || !wrote {
		return nil
	}
	lost := slices.Clone(h.Steps)
	lost[at].Input = write.with(func(s *Step) { s.Was = -1 })
	forged := map[string][]porcupine.Operation{
		"a token for the second time":         h.And(grant),
		"a token smaller than the one before": h.And(grant.with(func(s *Step) { s.Token-- })),
		"an update by an older holder":        h.And(write.with(func(s *Step) { s.Token = 1 })),
		"an update of what was not read":      lost,
	}
	if exclusive {
		latest := Step{What: Granted, Key: grant.Key, Token: math.MaxInt64}
		forged["two at once"] = h.And(latest.with(func(s *Step) { s.Token-- }), latest)
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
	write, _, _ := h.First(func(s Step) bool { return s.What == Updated })
	stale := slices.Clone(h.Steps)
	stale[at].Input = look.with(func(s *Step) { s.Was = -1 })
	const token = math.MaxInt64 - 1
	grant := Step{What: Granted, Key: enter.Key, Token: token}
	leave := grant.with(func(s *Step) { s.What = Left })
	reader := func(token int64) Step { return enter.with(func(s *Step) { s.Token = token }) }
	late := reader(token + 1)
	forged["a reader with a writer's token"] = h.And(grant, leave, grant.with(func(s *Step) { s.Mode = dblock.Shared }))
	forged["a reader with a token older than a writer's"] = h.And(grant, leave, reader(token-1))
	forged["a writer with the readers' token"] = h.And(late, late.with(func(s *Step) { s.What = Left }),
		grant.with(func(s *Step) { s.Token++ }))
	forged["a read of what was never written"] = stale
	// Of a key without a write it would be right.
	forged["a read by one from before a writer"] = h.And(look.with(func(s *Step) { s.Key, s.Token, s.Was = write.Key, 1, 0 }))
	if exclusive {
		forged["a writer beside a reader"] = h.And(reader(token-1), grant)
		forged["a reader beside a writer"] = h.And(grant, late)
	}
	return forged
}

// Permitted is the state of a semaphore. Who asks names the number of permits that it knows, which
// must be the semaphore's at some time while it asks. What it gets must fit into that number with
// all that is held then, also where there were more before.
type Permitted struct {
	Limit, held int
}

func (p Permitted) Next(s Step) []State {
	switch {
	case s.What == Believed && p.Limit == s.Limit:
	case s.What == Granted && p.held+s.Permits <= s.Limit:
		p.held += s.Permits
	case s.What == Left && p.held >= s.Permits:
		p.held -= s.Permits
	case s.What == Limited:
		p.Limit = s.Limit
	case s.What == Doubtful:
		return []State{p, Permitted{Limit: s.Limit, held: p.held}}
	default:
		return nil
	}
	return []State{p}
}

// ForgedPermits are histories with one step that no semaphore would have done.
func (h *History) ForgedPermits() map[string][]porcupine.Operation {
	grant, _, some := h.First(func(s Step) bool { return s.What == Granted })
	if !some {
		return nil
	}
	all := Step{What: Granted, Key: grant.Key, Permits: 3, Limit: 3}
	return map[string][]porcupine.Operation{
		"one permit too many":            h.And(all, all.with(func(s *Step) { s.Permits = 1 })),
		"one beside more than there are": h.And(all, all.with(func(s *Step) { s.Permits, s.Limit = 1, 2 })),
		"a permit given back twice":      h.And(grant.with(func(s *Step) { s.What = Left })),
		"a number that it never had":     h.And(Step{What: Believed, Key: grant.Key, Limit: dblock.MaxPermits}),
		"more than all":                  h.And(Step{What: Granted, Key: grant.Key, Permits: 4, Limit: 3}),
	}
}
