package inventory

const (
	recentSets    = 1 << 15 // 2 MB in all
	recentSetSize = 4       // places of a set, which is one line of the processor's cache
)

// recent is a map that remembers of each set of hashes those that were put or asked for last.
type recent struct {
	sets [][recentSetSize]recentSlot // nil: nothing was ever put
}

type recentSlot struct {
	hash uint64 // 0: it is free
	v    int64
}

func (r *recent) get(hash uint64) (v int64, found bool) {
	if r.sets == nil {
		return 0, false
	}
	set := &r.sets[hash%recentSets]
	for i, p := range set {
		if p.hash == hash {
			copy(set[1:i+1], set[:i])
			set[0] = p
			return p.v, true
		}
	}
	return 0, false
}

func (r *recent) put(hash uint64, v int64) {
	if r.sets == nil {
		r.sets = make([][recentSetSize]recentSlot, recentSets)
	}
	if _, found := r.get(hash); !found {
		set := &r.sets[hash%recentSets]
		copy(set[1:], set[:])
	}
	r.sets[hash%recentSets][0] = recentSlot{hash, v}
}
