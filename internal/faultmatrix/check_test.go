package faultmatrix

import (
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

const ms = time.Millisecond

// right is a history in which each promise is kept.
func right() ([]op, tables) {
	t := tables{
		writes: map[string]bool{"w1": true, "w2": true, "w3": true, "r1": true}, effects: map[string]int{"j1": 1, "j2": 1}, dead: map[string]bool{"j3": true},
		standing: map[string]bool{"j5": true}, orders: map[string]bool{"o1": true, "o2": true, "o4": true}, values: map[string]int64{"lock-0": 3, "readers": 0},
	}
	return []op{
		{Kind: opGrant, ID: "g1", Key: "lock-0", Token: 1, Begin: 0, End: 10 * ms, Limit: callLimit, Outcome: done},
		{Kind: opEnter, ID: "g1", Key: "lock-0", Begin: 11 * ms},
		{Kind: opWrite, ID: "w1", Key: "lock-0", Token: 1, Was: 0, Now: 1, Begin: 11 * ms, End: 20 * ms, Outcome: done},
		{Kind: opWrite, ID: "w2", Key: "lock-0", Token: 1, Was: 1, Now: 2, Begin: 20 * ms, End: 21 * ms, Outcome: unknown},
		{Kind: opLeave, ID: "g1", Key: "lock-0", Begin: 11 * ms, End: 30 * ms},
		{Kind: opGrant, Worker: 1, ID: "g2", Key: "lock-0", Token: 5, Begin: 0, End: 40 * ms, Outcome: done},
		{Kind: opEnter, Worker: 1, ID: "g2", Key: "lock-0", Begin: 40 * ms},
		{Kind: opWrite, Worker: 1, ID: "w3", Key: "lock-0", Token: 5, Was: 2, Now: 3, Begin: 41 * ms, End: 50 * ms, Outcome: done},
		{Kind: opExpire, Worker: 1, ID: "g2", Key: "lock-0", Begin: 40 * ms, End: 55 * ms},
		{Kind: opLeave, ID: "g6", Key: "lock-0", Begin: 56 * ms, End: 58 * ms},
		{Kind: opKill, Worker: 1, Begin: 60 * ms, End: 60 * ms},
		{Kind: opGrant, ID: "r1", Key: "readers", Mode: dblock.ModeShared, Token: 6, Begin: 60 * ms, End: 70 * ms, Outcome: done},
		{Kind: opRead, ID: "r1", Key: "readers", Mode: dblock.ModeShared, Token: 6, Begin: 71 * ms, End: 72 * ms, Outcome: done},
		{Kind: opLeave, ID: "r1", Key: "readers", Mode: dblock.ModeShared, Begin: 70 * ms, End: 80 * ms},
		{Kind: opGrant, ID: "r2", Key: "readers", Mode: dblock.ModeShared, Token: 6, Begin: 71 * ms, End: 72 * ms, Outcome: done},
		{Kind: opLeave, ID: "r2", Key: "readers", Mode: dblock.ModeShared, Begin: 72 * ms, End: 80 * ms},
		{Kind: opLeave, ID: "p1", Key: "permits", Mode: dblock.ModePermit, Permits: 2, Begin: 70 * ms, End: 80 * ms},
		{Kind: opLeave, ID: "p2", Key: "permits", Mode: dblock.ModePermit, Permits: 1, Begin: 72 * ms, End: 80 * ms},
		{Kind: opWrite, ID: "w4", Key: "lock-0", Token: 1, Begin: 50 * ms, End: 51 * ms, Outcome: refused, Err: "fenced"},
		{Kind: opEnqueue, ID: "j1", Outcome: done},
		{Kind: opEnqueue, ID: "j2", Outcome: unknown},
		{Kind: opEnqueue, ID: "j3", Outcome: done},
		{Kind: opEnqueue, ID: "j4", Outcome: refused},
		{Kind: opEnqueue, ID: "j5", Outcome: done},
		{Kind: opOrder, ID: "o1", Key: "o1", Outcome: unknown},
		{Kind: opOrder, ID: "o1", Key: "o1", Outcome: done},
		{Kind: opOrder, ID: "o2", Key: "o2", Outcome: unknown},
		{Kind: opOrder, ID: "o3", Key: "o3", Outcome: refused, Err: "sold out"},
		{Kind: opOrder, Worker: 1, ID: "o4", Key: "o4", Outcome: refused, Err: "too late"},
		{Kind: opRepeat, Worker: 1, ID: "o4", Key: "o4"}, // when it was killed
		{Kind: opPause, Begin: 100 * ms, End: 5 * time.Second},
		{Kind: opCall, ID: "c1", Limit: callLimit, Begin: 90 * ms, End: 6 * time.Second, Outcome: refused},
	}, t
}

// TestCheckers: each wrong history breaks its promise, and the right one breaks none.
func TestCheckers(t *testing.T) {
	t.Parallel()
	with := func(id, kind string, change func(*op)) func([]op, tables) []op {
		return func(ops []op, _ tables) []op {
			change(&ops[slices.IndexFunc(ops, func(o op) bool { return o.ID == id && o.Kind == kind })])
			return ops
		}
	}
	for name, c := range map[string]struct {
		breaks Promise
		forge  func([]op, tables) []op
	}{
		"a section beside another":       {Exclusion, with("g1", opLeave, func(o *op) { o.End = 41 * ms })},
		"a section of a killed worker":   {Exclusion, with("g1", opEnter, func(o *op) { o.ID, o.Worker = "x", 1 })},
		"a section before its moved end": {Exclusion, with("g2", opExpire, func(o *op) { o.End = 57 * ms })},
		"a session beside another": {Exclusion, func(ops []op, _ tables) []op {
			return append(ops, op{Kind: opSection, ID: "a", Key: sessionKey, Begin: 1, End: 3}, op{Kind: opSection, ID: "b", Key: sessionKey, Begin: 2, End: 4})
		}},
		"a writer beside a reader": {Exclusion, func(ops []op, _ tables) []op {
			return append(ops, op{Kind: opLeave, ID: "a", Key: "readers", Begin: 79 * ms, End: 90 * ms})
		}},
		"too many permits": {Exclusion, with("p2", opLeave, func(o *op) { o.Permits = 2 })},
		"a token of a reader and a writer": {FenceGrows, func(ops []op, _ tables) []op {
			return append(ops, op{Kind: opGrant, ID: "g3", Key: "k", Token: 5, Mode: dblock.ModeShared, Begin: 0, End: 2, Outcome: done},
				op{Kind: opGrant, ID: "g4", Key: "k", Token: 5, Begin: 1, End: 3, Outcome: done})
		}},
		"a read of another value": {GuardedWrite, with("r1", opRead, func(o *op) { o.Now = 2 })},
		"a smaller token": {FenceGrows, func(ops []op, _ tables) []op {
			return append(ops, op{Kind: opGrant, ID: "g3", Key: "k", Token: 5, Begin: 1, End: 2, Outcome: done},
				op{Kind: opGrant, ID: "g4", Key: "k", Token: 4, Begin: 3, End: 4, Outcome: done})
		}},
		"a token twice": {FenceGrows, func(ops []op, _ tables) []op {
			return append(ops, op{Kind: opGrant, ID: "g3", Key: "k", Token: 5, Begin: 0, End: 2, Outcome: done},
				op{Kind: opGrant, ID: "g4", Key: "k", Token: 5, Begin: 1, End: 3, Outcome: done})
		}},
		"a write by an older holder": {GuardedWrite, with("w3", opWrite, func(o *op) { o.Token = 1 })},
		"an update of what was not read": {GuardedWrite, func(ops []op, t tables) []op {
			return with("w3", opWrite, func(o *op) { o.Was = 1 })(ops, t)
		}},
		"a last update that is gone": {GuardedWrite, func(ops []op, t tables) []op { t.values["lock-0"] = 2; return ops }},
		"a write that is lost":       {NothingLost, func(ops []op, t tables) []op { delete(t.writes, "w3"); t.values["lock-0"] = 2; return ops }},
		"a job that is lost":         {NothingLost, func(ops []op, t tables) []op { delete(t.effects, "j1"); return ops }},
		"an order that is lost":      {NothingLost, func(ops []op, t tables) []op { delete(t.orders, "o1"); return ops }},
		"a job with two effects":     {NothingTwice, func(ops []op, t tables) []op { t.effects["j2"] = 2; return ops }},
		"an order that is recorded twice": {NothingTwice, func(ops []op, t tables) []op {
			t.orders["o1#2"] = true
			return append(ops, op{Kind: opOrder, ID: "o1", Key: "o1#2", Outcome: done})
		}},
		"a long call": {NoHang, with("c1", opCall, func(o *op) { o.End = 9 * time.Second })},
		"a refused write that is": {Truthful, func(ops []op, t tables) []op {
			t.writes["w5"] = true
			return append(ops, op{Kind: opWrite, Key: "x", ID: "w5", Outcome: refused})
		}},
		"a refused job that is":    {Truthful, func(ops []op, t tables) []op { t.effects["j4"] = 1; return ops }},
		"a refused job that waits": {Truthful, func(ops []op, t tables) []op { t.standing["j4"] = true; return ops }},
		"a refused order, repeated": {Truthful, func(ops []op, _ tables) []op {
			return append(ops, op{Kind: opOrder, ID: "o4", Key: "o4", Outcome: refused, Err: "too late"})
		}},
		"a refused order that is": {Truthful, func(ops []op, t tables) []op { t.orders["o3"] = true; return ops }},
		"sold out after it was sold": {Truthful, func(ops []op, _ tables) []op {
			return append(ops, op{Kind: opOrder, ID: "o1", Key: "o1", Outcome: refused, Err: "sold out"})
		}},
		"an error of no class": {Truthful, with("c1", opCall, func(o *op) { o.Outcome = unnamed })},
	} {
		ops, tables := right()
		for p, broken := range check(c.forge(ops, tables), tables, false) {
			if (len(broken) > 0) != (Promise(p) == c.breaks) {
				t.Errorf("%s: %v is broken by %q", name, Promise(p), broken)
			}
		}
	}
	ops, tables := right()
	for p, broken := range check(ops, tables, false) {
		if len(broken) > 0 {
			t.Errorf("the right history breaks %v: %q", Promise(p), broken)
		}
	}
	killed := slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return o.ID == "w3" })
	if v := check(killed, tables, false); len(v[GuardedWrite]) != 1 {
		t.Errorf("a write that no process has begun: %q", v[GuardedWrite])
	}
	begun := ops[slices.IndexFunc(ops, func(o op) bool { return o.ID == "w3" })]
	begun.Kind, begun.End, begun.Outcome, begun.Limit = opWriting, 0, "", 0
	if v := check(append(killed, begun), tables, false); len(v[GuardedWrite]) != 0 {
		t.Errorf("a write of a process that was killed at its commit: %q", v[GuardedWrite])
	}
	tables.leaks = []string{"a key"}
	if v := check(ops, tables, false); len(v[NoLeak]) != 1 {
		t.Errorf("a leak: %q", v[NoLeak])
	}
}
