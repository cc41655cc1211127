package programs

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// lockProgram is a program of locks of all kinds.
type lockProgram struct {
	Processes []lockProcess
	Faults    []fault `json:",omitempty"`
}

type lockProcess struct {
	Callers []lockCaller
	Lasts   time.Duration `json:",omitempty"` // for how long its callers begin steps; 0: lockLasts
}

// lockCaller is some callers that take the same steps, again and again until the program's time is
// up.
type lockCaller struct {
	Copies int
	Steps  []lockStep
}

// The kinds of locks. Those of one space exclude each other: see space.
const (
	lease   = "lease"
	fair    = "fair"
	elector = "elector"
	session = "session"
	line    = "line"    // a session lock with ServerQueue
	advised = "advised" // LockTx, of Postgres alone
	row     = "row"
	claim   = "claim"
	quorum  = "quorum"
)

var lockKinds = []string{lease, fair, session, line, elector, row, claim, advised, quorum}

// space is in which kinds of locks share their keys.
func (s lockStep) space() string {
	switch s.Lock {
	case lease, fair, elector:
		if s.Mode == dblock.ModePermit {
			return "permits"
		}
		return lease
	case session, line, advised:
		return session
	case row, claim:
		return row
	}
	return s.Lock
}

// How a step ends its lock.
const (
	byRelease  = "release"
	byForce    = "force"  // ForceRelease, as an operator does
	byExpireIn = "expire" // ExpireIn while the lock is used
	byItself   = "itself" // WithMaxHold or WithoutRenewal
	byClose    = "close"  // its Locker is closed while the lock is used
)

var lockEnds = []string{byRelease, byRelease, byExpireIn, byItself, byForce, byClose}

const (
	lockKeys    = 3
	lockLimit   = 3 // permits of a semaphore, unless the program changes them
	mostPermits = 4 // of one whose permits a program changes
	lockTTL     = 10 * time.Second
	sessionTTL  = 3 * time.Second
)

// lockStep is one use of a lock.
type lockStep struct {
	Lock     string
	Locker   int           // which of the process's two of this kind
	Keys     []int         `json:",omitempty"`
	Mode     dblock.Mode   `json:",omitempty"`
	Permits  int           `json:",omitempty"`
	Try      bool          `json:",omitempty"`
	Wait     time.Duration // what the context allows
	Hold     time.Duration `json:",omitempty"` // with WithMaxHold
	Detached bool          `json:",omitempty"` // with WithoutRenewal instead
	Work     time.Duration // how long the lock is used
	Limit    int           `json:",omitempty"` // of the semaphore
	Resizes  bool          `json:",omitempty"` // SetPermits gives the semaphore this limit first
	Guard    bool          `json:",omitempty"` // a GuardedTx counts
	Raise    bool          `json:",omitempty"` // two transactions count, with AdvanceFence and CheckFence
	Again    bool          `json:",omitempty"` // the lock is acquired once more below itself
	End      string
	After    time.Duration `json:",omitempty"` // what ExpireIn gives
	Within   time.Duration `json:",omitempty"` // what its context allows
	Twice    bool          `json:",omitempty"` // another ExpireIn beside it gives more
}

// lockChoice is what the steps of a program have. It is little: what happens seldom between all
// kinds of steps happens often between two.
type lockChoice struct {
	kinds, ends []string
	keys        int
	resizes     bool // semaphores
}

func drawLocks(kind devdb.Kind, faults bool) func(*rapid.T) lockProgram {
	return func(t *rapid.T) lockProgram {
		kinds := slices.DeleteFunc(slices.Clone(lockKinds), func(k string) bool { return k == advised && kind != devdb.Postgres })
		some := lockChoice{
			kinds: rapid.SliceOfNDistinct(rapid.SampledFrom(kinds), 1, 3, rapid.ID[string]).Draw(t, "kinds"),
			ends:  rapid.SliceOfNDistinct(rapid.SampledFrom(lockEnds), 1, 3, rapid.ID[string]).Draw(t, "ends"),
			keys:  rapid.IntRange(1, lockKeys).Draw(t, "keys"),

			resizes: rapid.Bool().Draw(t, "resizes"),
		}
		step := rapid.Custom(func(t *rapid.T) lockStep { return drawLockStep(t, kind, some) })
		callers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) lockCaller {
			return lockCaller{
				Copies: oneOf(t, "copies", 1, 1, 2, 4, 8, 16),
				Steps:  rapid.SliceOfN(step, 1, 3).Draw(t, "steps"),
			}
		}), 1, 4)
		p := lockProgram{Processes: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) lockProcess {
			return lockProcess{Callers: callers.Draw(t, "callers")}
		}), 1, 4).Draw(t, "processes")}
		if faults {
			p.Faults = drawFaults(t, lockTables)
		}
		return p
	}
}

// drawDense draws a program of leases that many callers use for a moment: it has thousands of
// grants.
func drawDense(kind devdb.Kind) func(*rapid.T) lockProgram {
	return func(t *rapid.T) lockProgram {
		ends := append(slices.Repeat([]string{byRelease}, 12), byForce, byExpireIn, byItself)
		some := lockChoice{kinds: []string{lease, lease, lease, fair}, ends: ends, keys: lockKeys}
		step := rapid.Custom(func(t *rapid.T) lockStep {
			s := drawLockStep(t, kind, some)
			s.Work, s.Wait = oneOf(t, "work", 0, time.Millisecond, 2*time.Millisecond), oneOf(t, "wait", 5*time.Millisecond, time.Second)
			return s
		})
		caller := rapid.Custom(func(t *rapid.T) lockCaller {
			return lockCaller{Copies: 1, Steps: rapid.SliceOfN(step, 8, 8).Draw(t, "steps")}
		})
		return lockProgram{Processes: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) lockProcess {
			return lockProcess{Callers: rapid.SliceOfN(caller, 8, 8).Draw(t, "callers"), Lasts: 2 * time.Second}
		}), 3, 3).Draw(t, "processes")}
	}
}

func drawLockStep(t *rapid.T, kind devdb.Kind, some lockChoice) lockStep {
	s := lockStep{
		Lock:   rapid.SampledFrom(some.kinds).Draw(t, "lock"),
		Locker: rapid.IntRange(0, 1).Draw(t, "locker"),
		Keys:   []int{rapid.IntRange(0, some.keys-1).Draw(t, "key")},
		Mode:   oneOf(t, "mode", dblock.ModeExclusive, dblock.ModeExclusive, dblock.ModeShared, dblock.ModePermit),
		Try:    rapid.Bool().Draw(t, "try"),
		Wait:   oneOf(t, "wait", time.Second, 100*time.Millisecond, 20*time.Millisecond, time.Millisecond),
		Work:   oneOf(t, "work", 0, time.Millisecond, 3*time.Millisecond, 30*time.Millisecond, 150*time.Millisecond),
		End:    rapid.SampledFrom(some.ends).Draw(t, "end"),
		Guard:  rapid.IntRange(0, 3).Draw(t, "guard") == 3,
		Again:  rapid.IntRange(0, 7).Draw(t, "again") == 7,
	}
	if rapid.IntRange(0, 3).Draw(t, "set") == 3 {
		s.Keys = rapid.SliceOfNDistinct(rapid.IntRange(0, lockKeys-1), 2, 2, rapid.ID[int]).Draw(t, "keys")
	}
	s.Raise = rapid.IntRange(0, 3).Draw(t, "raise") == 3
	if s.Limit = lockLimit; some.resizes {
		s.Limit, s.Resizes = rapid.IntRange(2, mostPermits).Draw(t, "limit"), rapid.Bool().Draw(t, "resizes")
	}
	s.Permits = rapid.IntRange(1, lockLimit).Draw(t, "permits")
	s.After = oneOf(t, "after", 20*time.Millisecond, 5*time.Millisecond, 80*time.Millisecond)
	s.Within = oneOf(t, "within", time.Second, 3*time.Millisecond, time.Millisecond, 300*time.Microsecond)
	s.Twice = rapid.Bool().Draw(t, "twice")
	s.Hold = oneOf(t, "hold", 60*time.Millisecond, 150*time.Millisecond)
	s.Detached = rapid.Bool().Draw(t, "detached")
	return s.fitted(kind)
}

// fitted leaves out what its kind of lock does not have.
func (s lockStep) fitted(kind devdb.Kind) lockStep {
	leases := s.Lock == lease || s.Lock == fair || s.Lock == elector
	modes := []dblock.Mode{dblock.ModeExclusive}
	switch {
	case s.Lock == lease:
		modes = append(modes, dblock.ModeShared, dblock.ModePermit)
	case s.Lock == row, kind == devdb.Postgres && (s.Lock == session || s.Lock == line || s.Lock == advised):
		modes = append(modes, dblock.ModeShared)
	}
	if !slices.Contains(modes, s.Mode) {
		s.Mode = dblock.ModeExclusive
	}
	sets := s.Lock == lease && s.Mode == dblock.ModeExclusive || s.Lock == row || s.Lock == claim || s.Lock == advised
	if !sets {
		s.Keys = s.Keys[:1]
	}
	slices.Sort(s.Keys)
	s.Permits = min(s.Permits, s.Limit)
	if s.Mode != dblock.ModePermit {
		s.Permits, s.Limit, s.Resizes = 0, 0, false
	}
	own := s.Lock == row || s.Lock == claim || s.Lock == advised // they end with their transaction
	switch {
	case own, s.Lock == elector && s.End != byExpireIn:
		s.End = byRelease
	case !leases && (s.End == byForce || s.Lock != quorum && (s.End == byExpireIn || s.End == byItself)):
		s.End = byRelease
	case s.End == byForce && (s.Mode != dblock.ModeExclusive || len(s.Keys) > 1): // readers have one token
		s.End = byRelease
	}
	if s.End != byItself {
		s.Hold, s.Detached = 0, false
	}
	if s.End != byExpireIn {
		s.After, s.Within, s.Twice = 0, 0, false
	}
	s.Guard = s.Guard && leases
	s.Raise = s.Raise && leases && s.Mode == dblock.ModeExclusive
	s.Again = s.Again && !own && s.Lock != elector
	return s
}
