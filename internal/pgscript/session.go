package pgscript

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Session is one client that runs a script: its variables and its random numbers. It belongs to one
// goroutine at a time.
type Session struct {
	script *Script
	slots  []slot
	random *rand.Rand
	stack  []value // arguments of the functions that are being called
}

// Session of a client. The same seed and client draw the same numbers again.
func (s *Script) Session(client int, seed uint64) *Session {
	v := &Session{script: s, slots: slices.Clone(s.start), random: rand.New(rand.NewPCG(seed, uint64(client)))}
	// Defined by the caller, they stay what they were defined as.
	for i, n := range [...]int64{clientSlot: int64(client), seedSlot: int64(seed), defaultSeedSlot: v.random.Int64()} {
		if !v.slots[i].isText {
			v.slots[i].value = integer(n)
		}
	}
	return v
}

// Set evaluates a \set.
func (v *Session) Set(c *Set) error {
	n, err := c.expr.eval(v)
	if err != nil {
		return v.script.Failed(c, fmt.Errorf(`\set %s: %w`, c.Name, err))
	}
	v.slots[c.slot] = slot{value: n}
	return nil
}

// Sleep is how long a \sleep is to last.
func (v *Session) Sleep(c *Sleep) (time.Duration, error) {
	if c.v == nil {
		return c.duration(c.n), nil
	}
	n, err := v.slots[c.v.slot].integer()
	if err != nil {
		return 0, v.script.Failed(c, fmt.Errorf(`\sleep :%s: %w`, c.v.Name, err))
	}
	return c.duration(n), nil
}

// Append writes a variable as text, as pgbench sends it.
func (v *Session) Append(dst []byte, of Var) []byte {
	s := &v.slots[of.slot]
	if s.isText {
		return append(dst, s.text...)
	}
	return s.append(dst)
}

// Value is a variable as an int64, a float64 or a string.
func (v *Session) Value(of Var) any {
	switch s := &v.slots[of.slot]; {
	case s.isText:
		return s.text
	case s.isDouble:
		return s.f
	default:
		return s.i
	}
}
