package locksim

import "time"

// seed decides what happens in a simulation.
type seed uint64

// dice draws numbers that depend on the seed and on their purpose alone, and not on the order in
// which goroutines ask.
type dice struct{ state uint64 }

// dice returns the numbers for one purpose, of which there is one at a time.
func (s seed) dice(purpose string, at time.Duration) *dice {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(purpose) {
		h = (h ^ uint64(purpose[i])) * 1099511628211
	}
	d := &dice{h ^ uint64(at)*0x9e3779b97f4a7c15 ^ uint64(s)*0xd1342543de82ef95}
	d.next()
	return d
}

// next is SplitMix64.
func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number from 0 to below n.
func (d *dice) below(n int) int { return int(d.next() % uint64(n)) }

// permille is true n times of 1,000.
func (d *dice) permille(n int) bool { return d.below(1000) < n }

// between returns a duration from least to below most.
func (d *dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.next()%uint64(most-least))
}

// pick returns one of several.
func pick[T any](d *dice, of ...T) T { return of[d.below(len(of))] }
