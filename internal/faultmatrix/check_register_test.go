package faultmatrix

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
)

// register is the state of a key whose lock guards a value: the largest token, whether readers have
// it, and the value. Leases may be granted before an older holder knows, so that all rests on
// tokens and guards.
type register struct {
	token  int64
	shared bool
	value  int64
}

// registerModel has grants, writes and reads. A grant has a larger token; readers may share one. A
// write is by the holder of the largest token, and of the value that it has read. A reader's read
// is under the largest token, too.
var registerModel = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[string][]porcupine.Operation)
		for _, o := range all {
			key := o.Input.(op).Key
			byKey[key] = append(byKey[key], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) {
		r, o := state.(register), input.(op)
		switch o.Kind {
		case opGrant:
			shared := o.Mode == dblock.ModeShared
			return o.Token > r.token || o.Token == r.token && shared && r.shared, register{o.Token, shared, r.value}
		case opWrite:
			return o.Token == r.token && o.Was == r.value, register{r.token, r.shared, o.Now}
		case opRead:
			return o.Token == r.token && r.shared && o.Now == r.value, r
		default:
			return o.Now == r.value, r
		}
	},
}

const registerTimeout = 20 * time.Second

// checkRegister asks porcupine for an order of all grants and writes that makes sense. Whether a
// write took place, the tables say.
func checkRegister(v *violations, ops []op, t tables) {
	ops = append(slices.Clone(ops), unreturned(ops)...)
	var history []porcupine.Operation
	var end time.Duration
	for i, o := range ops {
		until := o.End
		switch {
		case o.Kind == opGrant && o.Outcome == done && t.guards(o.Key):
		case (o.Kind == opWrite || o.Kind == opRead) && t.writes[o.ID]:
			if o.Outcome != done {
				until = math.MaxInt64 - 1 // the server may commit it later
			}
		default:
			continue
		}
		end = max(end, o.End)
		history = append(history, porcupine.Operation{ClientId: i, Input: o, Call: int64(o.Begin), Return: int64(until)})
	}
	keys := make(map[string]bool)
	for _, o := range history {
		keys[o.Input.(op).Key] = true
	}
	for key := range keys {
		// The value that the table has in the end is read after everything.
		last := op{Kind: opCall, Key: key, Now: t.values[key]}
		history = append(history, porcupine.Operation{
			ClientId: len(ops), Input: last, Call: math.MaxInt64 - 1, Return: math.MaxInt64,
		})
	}
	for _, part := range registerModel.Partition(history) {
		key := part[0].Input.(op).Key
		switch porcupine.CheckOperationsTimeout(registerModel, part, registerTimeout) {
		case porcupine.Illegal:
			v.add(GuardedWrite, "%s: no order of its %d grants and writes makes sense", key, len(part))
		case porcupine.Unknown:
			v.add(GuardedWrite, "%s: no order of its %d grants and writes was found in %v", key, len(part), registerTimeout)
		}
	}
}

// unreturned returns the writes of which the process was killed before it logged what became of
// them.
func unreturned(ops []op) []op {
	writes := make(map[string]op)
	for _, o := range ops {
		if o.Kind == opWriting {
			o.Kind, o.Outcome = opWrite, unknown
			writes[o.ID] = o
		}
	}
	for _, o := range ops {
		if o.Kind == opWrite {
			delete(writes, o.ID)
		}
	}
	return slices.Collect(maps.Values(writes))
}

// guards reports whether a key's lock guards a value.
func (t tables) guards(key string) bool {
	_, has := t.values[key]
	return has
}
