package programs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
)

// lockLog is what all processes of a program have logged.
type lockLog struct {
	holds    []hold
	counts   []count
	sizes    []resizing
	failures []failure
}

func readLocks(logs [][]log) (all lockLog, err error) {
	for _, lines := range logs {
		for _, l := range lines {
			switch l.Word {
			case "hold":
				all.holds, err = added(all.holds, l)
			case "count":
				all.counts, err = added(all.counts, l)
			case "limit":
				all.sizes, err = added(all.sizes, l)
			case "error":
				all.failures, err = added(all.failures, l)
			}
			if err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

func added[T any](to []T, l log) ([]T, error) {
	var one T
	err := json.Unmarshal(l.Data, &one)
	return append(to, one), err
}

// trusted is until when the caller had reason to rely on its lock. It had none after the grant if
// the end of the lock says that the lock had been lost, unless its time was up: then the caller
// knew when.
func (h *hold) trusted() int64 {
	until := h.Left
	if h.Valid != 0 {
		until = min(until, h.Valid)
	}
	switch h.Lost {
	case "", string(dblock.ReasonTimeUp), string(dblock.ReasonExpired):
		return max(until, h.Granted)
	}
	return h.Granted
}

// excuses reports whether the hold was used at some time of a try to enter, although it had ended,
// as its caller could not know yet.
func (h *hold) excuses(from, to int64) bool {
	return h.trusted() < h.Left && h.trusted() <= to && from <= h.Left
}

// step is one of a key's history.
type step struct {
	leaves  bool
	mode    dblock.Mode
	permits int
	token   int64
}

// keyState is what a key is in.
type keyState struct {
	writers, readers, permits int
	token                     int64
}

func (k keyState) next(s step) (keyState, bool) {
	by := 1
	if s.leaves {
		by = -1
	}
	switch s.mode {
	case dblock.ModeExclusive:
		k.writers += by
	case dblock.ModeShared:
		k.readers += by
	case dblock.ModePermit:
		k.permits += by * s.permits
	}
	if !s.leaves && s.token != 0 && s.mode != dblock.ModePermit {
		if s.token < k.token || s.token == k.token && s.mode == dblock.ModeExclusive {
			return k, false
		}
		k.token = s.token
	}
	return k, k.writers >= 0 && k.readers >= 0 && k.permits >= 0 && k.writers <= 1 && k.permits <= mostPermits &&
		(k.writers == 0 || k.readers == 0)
}

var keyModel = porcupine.Model{
	Init: func() any { return keyState{} },
	Step: func(now, input, _ any) (bool, any) {
		next, ok := now.(keyState).next(input.(step))
		return ok, next
	},
}

// checkLocks checks what the processes have logged. final are the numbers that were counted.
func checkLocks(v *verdict, all lockLog, final map[int]int64) {
	byKey := map[string][]hold{}
	for _, h := range all.holds {
		for _, name := range sectionsOf(&h) {
			byKey[name] = append(byKey[name], h)
		}
	}
	for name, holds := range byKey {
		checkKey(v, name, holds)
		checkPermits(v, name, holds, all.sizes)
	}
	least, most := map[int]int64{}, map[int]int64{}
	for _, c := range all.counts {
		if most[c.ID]++; !c.Unknown {
			least[c.ID]++
		}
	}
	for id, n := range final {
		if n < least[id] || n > most[id] {
			v.add("count", "number %d is %d after %d to %d updates", id, n, least[id], most[id])
		}
	}
	for _, h := range all.holds {
		if h.Lost == string(dblock.ReasonStolen) && !h.Forced && h.Space != quorum {
			v.add("stolen", "%s %v was taken away, and no program did that: %+v", h.Space, h.Names, h)
		}
	}
	for _, f := range all.failures {
		v.add("error", "%s: %s", f.Call, f.Error)
	}
}

// tokenOf is the token of one of the keys; 0 if there is none.
func (h *hold) tokenOf(name string) int64 {
	if i := slices.Index(sectionsOf(h), name); i < len(h.Tokens) {
		return h.Tokens[i]
	}
	return 0
}

// checkKey checks the holds of one key. A lock was granted before its caller learned of it, and it
// ended after its caller had left. The caller relies only on the time between, and porcupine looks
// at that: if two of these times overlap, or a token falls, there is no order that a lock could
// have had.
func checkKey(v *verdict, name string, holds []hold) {
	for i, h := range holds {
		if h.MetIn != name || h.excuses(h.Granted, h.Met) {
			continue
		}
		if !slices.ContainsFunc(holds, func(o hold) bool {
			return o.excuses(h.Granted, h.Met) && (o.Client != h.Client || o.Called != holds[i].Called)
		}) {
			v.add("exclusion", "two were in the section %q, by the operating system:\n%s", name, around(holds, h.Met))
			break
		}
	}
	var ops []porcupine.Operation
	note := func(h hold, s step, at int64) {
		ops = append(ops, porcupine.Operation{ClientId: h.Client, Input: s, Call: at, Return: at})
	}
	for _, h := range holds {
		if h.trusted() <= h.Granted {
			continue
		}
		s := step{mode: h.Mode, permits: h.Permits, token: h.tokenOf(name)}
		note(h, s, h.Granted)
		s.leaves = true
		note(h, s, h.trusted())
	}
	switch porcupine.CheckOperationsTimeout(keyModel, ops, 20*time.Second) {
	case porcupine.Illegal:
		v.add("exclusion", "no lock would have given %q so:\n%s", name, conflicts(holds))
	case porcupine.Unknown:
		v.add("unchecked", "no order was found for %q in time, nor that there is none, for %d steps", name, len(ops))
	}
}

// around shows the holds of a key at a time.
func around(holds []hold, at int64) string {
	return show(holds, func(h hold) bool { return h.Granted <= at && at <= h.Released })
}

// conflicts shows the holds that another one overlaps, or all.
func conflicts(holds []hold) string {
	some := show(holds, func(h hold) bool {
		return slices.ContainsFunc(holds, func(o hold) bool {
			return (o.Called != h.Called || o.Client != h.Client) && o.Granted < h.trusted() && h.Granted < o.trusted() &&
				(o.Mode != dblock.ModeShared || h.Mode != dblock.ModeShared)
		})
	})
	if some == "" {
		return show(holds, func(hold) bool { return true })
	}
	return some
}

func show(holds []hold, which func(hold) bool) string {
	holds = slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return !which(h) })
	slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.Granted, b.Granted) })
	var lines []string
	for _, h := range holds[:min(len(holds), 20)] {
		since := func(at int64) time.Duration { return time.Duration(at - holds[0].Called) }
		lines = append(lines, fmt.Sprintf("  caller %d, %v, mode %v: called %v, granted %v, valid until %v, left %v, released %v, lost %q, tokens %v",
			h.Client, h.Names, h.Mode, since(h.Called), since(h.Granted), since(h.Valid), since(h.Left), since(h.Released), h.Lost, h.Tokens))
	}
	return strings.Join(lines, "\n")
}
