package locksim

import (
	"cmp"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
)

// verdict checks a history that is complete.
func (j *checker) verdict() {
	for _, key := range j.w.keys {
		j.excludes(key)
		if j.w.sessions == nil {
			j.grows(key)
		}
	}
}

// of returns the holds of a key, in the order in which they began.
func (j *checker) holdsOf(key string, semaphore bool) (holds []*hold) {
	for _, h := range j.holds {
		if slices.Contains(h.op.keys, key) && (h.op.mode == dblock.ModePermit) == semaphore && h.from < h.to {
			holds = append(holds, h)
		}
	}
	slices.SortFunc(holds, func(a, b *hold) int { return cmp.Compare(a.from, b.from) })
	return holds
}

// excludes checks that no two hold a key that must not, and that no more permits are held than
// there are.
func (j *checker) excludes(key string) {
	for _, semaphore := range []bool{false, true} {
		holds := j.holdsOf(key, semaphore)
		for i, h := range holds {
			taken := h.op.permits
			for _, before := range holds[:i] {
				switch {
				case before.to <= h.from, j.excused(before, h):
				case semaphore:
					taken += before.op.permits
				case h.op.mode == dblock.ModeExclusive || before.op.mode == dblock.ModeExclusive:
					j.find("%s held %s from %v, and %s until %v", h.op.label, key, h.from, before.op.label, before.to)
				}
			}
			if semaphore && taken > permits {
				j.find("when %s got %s at %v, %d permits of %d were held", h.op.label, key, h.from, taken, permits)
			}
		}
	}
}

// excused reports that a holder could not know of the other one.
func (j *checker) excused(before, next *hold) bool {
	return j.isStale(before, next.from) || j.isStale(next, next.from)
}

// isStale reports that the server had ended the connection of a holder, without a word until then.
// Its release does not say that it had the lock.
func (j *checker) isStale(h *hold, now time.Duration) bool {
	return j.w.sessions != nil && !h.kept && slices.ContainsFunc(j.w.restarts, func(s span) bool {
		return h.granted <= s.from && s.from <= now
	})
}

// grows checks that each hold's fence is higher than those before it. Readers share one.
func (j *checker) grows(key string) {
	var last *hold
	for _, h := range j.holdsOf(key, false) {
		if last != nil && (h.token(key) < last.token(key) ||
			h.token(key) == last.token(key) && (h.op.mode == dblock.ModeExclusive || last.op.mode == dblock.ModeExclusive)) {
			j.find("%s got %s with token %d after %s with %d", h.op.label, key, h.token(key), last.op.label, last.token(key))
		}
		last = h
	}
}

func (h *hold) token(key string) int64 {
	for _, f := range h.fences {
		if f.Key == key {
			return f.Token
		}
	}
	return 0
}
