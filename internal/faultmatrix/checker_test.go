package faultmatrix

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
)

// slack is how much later than its deadline a call may return.
const slack = 3 * time.Second

// tables is what the server's own tables say in the end.
type tables struct {
	writes   map[string]bool  // matrix_write, by ID
	effects  map[string]int   // matrix_effect, by job
	dead     map[string]bool  // jobs that are kept as dead
	standing map[string]bool  // jobs that have not ended
	orders   map[string]bool  // reservations that were sold, by key
	values   map[string]int64 // matrix_value

	lost         []string // jobs that did not end or never will, books that are wrong
	oversold     []string
	leaks        []string // what is held though no living worker uses it
	controlLeaks []string
}

// violations are descriptions of what broke each promise.
type violations [promises][]string

func (v *violations) add(p Promise, format string, args ...any) {
	v[p] = append(v[p], fmt.Sprintf(format, args...))
}

// check checks the ops of the workload, or those of its control.
func check(all []op, t tables, control bool) (v violations) {
	var ops, machine []op
	for _, o := range all {
		switch {
		case o.Kind == opPause || o.Kind == opKill:
			machine = append(machine, o)
		case o.Control == control:
			ops = append(ops, o)
		}
	}
	checkExclusion(&v, ops, machine)
	checkFences(&v, ops)
	checkRegister(&v, ops, t)
	checkEffects(&v, ops, t)
	checkOrders(&v, ops, t)
	checkCalls(&v, ops, machine)
	v[NoLeak] = append(v[NoLeak], t.leaks...)
	if control {
		v[NoLeak] = t.controlLeaks
	} else {
		v[NothingLost] = append(v[NothingLost], t.lost...)
		v[NothingTwice] = append(v[NothingTwice], t.oversold...)
	}
	return v
}

// section is a time in which a worker counts on a key.
type section struct {
	key, id  string
	mode     dblock.Mode
	permits  int
	from, to time.Duration
}

// sectionsOf puts sections together. That of a killed process ends with it, or before if the
// process had moved its end.
func sectionsOf(ops, machine []op) (all []section) {
	left := make(map[string]bool)
	moved := make(map[string]time.Duration)
	for _, o := range ops {
		switch o.Kind {
		case opLeave, opSection:
			left[o.ID] = true
			all = append(all, section{o.Key, o.ID, o.Mode, o.Permits, o.Begin, o.End})
		case opExpire:
			moved[o.ID] = o.End
		}
	}
	for _, o := range ops {
		if o.Kind != opEnter || left[o.ID] {
			continue
		}
		for _, k := range machine {
			if k.Kind != opKill || k.Worker != o.Worker {
				continue
			}
			end := k.End
			if until, has := moved[o.ID]; has {
				end = min(end, until)
			}
			all = append(all, section{o.Key, o.ID, o.Mode, o.Permits, o.Begin, end})
		}
	}
	return slices.DeleteFunc(all, func(s section) bool { return s.to <= s.from })
}

// checkExclusion counts the sections that begin while another one of the key lasts, unless both are
// of readers, and those that begin with more permits than there are.
func checkExclusion(v *violations, ops, machine []op) {
	all := sectionsOf(ops, machine)
	slices.SortFunc(all, func(a, b section) int { return cmp.Compare(a.from, b.from) })
	open := make(map[string][]section)
	for _, s := range all {
		beside := slices.DeleteFunc(open[s.key], func(o section) bool { return o.to <= s.from })
		permits := s.permits
		for _, o := range beside {
			permits += o.permits
			if s.mode != o.mode || s.mode == dblock.ModeExclusive {
				v.add(Exclusion, "%s: section %s began %v before the end of section %s", s.key, s.id, o.to-s.from, o.id)
			}
		}
		if permits > permitLimit {
			v.add(Exclusion, "%s: section %s began with %d permits of %d", s.key, s.id, permits, permitLimit)
		}
		open[s.key] = append(beside, s)
	}
}

// checkFences counts the grants whose token is not larger than that of a grant which returned
// before they were asked for. Readers may share a token. Permits have tokens in no order.
func checkFences(v *violations, ops []op) {
	byKey := make(map[string][]op)
	for _, o := range ops {
		if o.Kind == opGrant && o.Outcome == done && o.Key != controlKey && o.Mode != dblock.ModePermit {
			byKey[o.Key] = append(byKey[o.Key], o)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		seen := make(map[int64]op)
		for _, o := range byKey[key] {
			if other, has := seen[o.Token]; has && (o.Mode != dblock.ModeShared || other.Mode != dblock.ModeShared) {
				v.add(FenceGrows, "%s: grants %s and %s have the token %d", key, other.ID, o.ID, o.Token)
			}
			seen[o.Token] = o
			for _, before := range byKey[key] {
				if before.End < o.Begin && before.Token > o.Token {
					v.add(FenceGrows, "%s: grant %s has the token %d, after %d of %s", key, o.ID, o.Token, before.Token, before.ID)
					break
				}
			}
		}
	}
}

// checkEffects holds what calls returned for writes and jobs against the tables.
func checkEffects(v *violations, ops []op, t tables) {
	for _, o := range ops {
		var there bool
		switch o.Kind {
		case opWrite, opRead:
			there = t.writes[o.ID]
		case opEnqueue:
			n := t.effects[o.ID]
			there = n > 0 || t.dead[o.ID] || t.standing[o.ID]
			if n > 1 {
				v.add(NothingTwice, "job %s took effect %d times", o.ID, n)
			}
		default:
			continue
		}
		switch {
		case o.Outcome == done && !there:
			v.add(NothingLost, "%s %s returned nil, and is lost", o.Kind, o.ID)
		case o.Outcome == refused && there:
			v.add(Truthful, "%s %s is in the database, and returned %q", o.Kind, o.ID, o.Err)
		}
	}
}

// checkOrders does so for orders, which may be sent several times. What became of the last time is
// not known if the process was killed meanwhile.
func checkOrders(v *violations, ops []op, t tables) {
	byKey := make(map[string][]op)
	repeats := make(map[string]int)
	recorded := make(map[string]int) // by order
	for _, o := range ops {
		if o.Kind == opOrder {
			byKey[o.Key] = append(byKey[o.Key], o)
		}
		if o.Kind == opRepeat {
			repeats[o.Key]++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		sold, doubt, last := false, len(byKey[key]) <= repeats[key], op{}
		for _, o := range byKey[key] {
			if sold && o.Outcome == refused && strings.Contains(o.Err, "sold out") {
				v.add(Truthful, "order %s was sold, and then returned %q", key, o.Err)
			}
			sold, doubt, last = sold || o.Outcome == done, doubt || o.Outcome == unknown, o
		}
		switch there := t.orders[key]; {
		case sold && !there:
			v.add(NothingLost, "order %s returned nil, and is lost", key)
		case !sold && !doubt && there && last.Outcome == refused:
			v.add(Truthful, "order %s is in the database, and returned %q", key, last.Err)
		}
		if t.orders[key] {
			if recorded[last.ID]++; recorded[last.ID] == 2 {
				v.add(NothingTwice, "order %s is recorded twice", last.ID)
			}
		}
	}
}

// checkCalls counts calls that took too long, and errors of no class.
func checkCalls(v *violations, ops, machine []op) {
	for _, o := range ops {
		if o.Outcome == unnamed {
			v.add(Truthful, "%s %s %s returned an error of no class: %q", o.Kind, o.ID, o.Key, o.Err)
		}
		if o.Limit == 0 {
			continue
		}
		took := o.End - o.Begin
		for _, p := range machine {
			if p.Kind == opPause && p.Worker == o.Worker {
				took -= max(0, min(o.End, p.End)-max(o.Begin, p.Begin))
			}
		}
		if took > o.Limit+slack {
			v.add(NoHang, "%s %s %s took %v, and its deadline was after %v: %q", o.Kind, o.ID, o.Key, took, o.Limit, o.Err)
		}
	}
}
