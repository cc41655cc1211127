package locksim

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
)

// span is a time between two moments of a simulation.
type span struct{ from, to time.Duration }

func (s span) has(at time.Duration) bool { return s.from <= at && at < s.to }

// scenario is what happens in a simulation, as its seed decides.
type scenario struct {
	kind      kind
	most      int  // session locks on one connection
	line      bool // waiters for session locks wait at the server
	ttl, poll time.Duration
	fair      bool // all Lockers are
	mixed     bool // some are
	deaf      bool // the server notifies no process
	keys      []string
	processes []plan
	faults    time.Duration // they cease then
	restarts  []span        // of the server
	locked    map[string][]span

	lost, late, refuse int // permille of the messages; late ones arrive up to three TTLs later
}

// plan is what one process does, and what happens to it.
type plan struct {
	name     string
	fair     bool
	drift    float64 // by how much its clock is faster than the server's
	programs [][]op
	pauses   []span // it stands still
	cuts     []span // no message of its arrives, either way
	dies     []span // it is killed, and comes back
}

// op is one acquisition.
type op struct {
	label    string
	keys     []string
	set, try bool
	detached bool // its process does not keep it
	opts     []dblock.Option
	mode     dblock.Mode
	permits  int
	think    time.Duration // before it
	wait     time.Duration // for the lock; 0: for as long as it takes
	hold     time.Duration
	writes   int           // guarded ones, while it holds the lock
	expireIn time.Duration // 0: not used
}

func (o op) String() string {
	s := o.label + " acquires"
	if o.try {
		s = o.label + " tries"
	}
	return fmt.Sprintf("%s %v %v", s, o.keys, o.mode)
}

// permits is the number of each semaphore's.
const permits = 3

// maxDrift is by how much a process's clock may be faster or slower than the server's. The margin,
// a tenth of the TTL, bears up to a tenth.
const maxDrift = 0.05

// kind is of the locks that a simulation uses.
type kind string

const (
	leases       kind = "leases"
	sessionLocks kind = "session locks"
)

func newScenario(s seed, of kind) scenario {
	d := s.dice("scenario", 0)
	sc := scenario{
		kind: of, most: pick(d, 2, 100), line: d.permille(300),
		ttl: d.between(time.Second, 4*time.Second), poll: d.between(50*time.Millisecond, time.Second),
		fair: d.permille(250), mixed: d.permille(250), deaf: d.permille(300), faults: d.between(4*time.Second, 10*time.Second), locked: map[string][]span{},
	}
	for i := range 1 + d.below(3) {
		key := fmt.Sprintf("k%d", i)
		sc.keys = append(sc.keys, key)
		for range d.below(3) {
			sc.locked[key] = append(sc.locked[key], sc.span(d, 400*time.Millisecond))
		}
	}
	if of == sessionLocks {
		sc.fair, sc.mixed = false, false
	}
	if d.permille(700) { // else the network is good
		sc.lost, sc.late, sc.refuse = d.below(80), d.below(60), d.below(60)
	}
	if d.permille(250) {
		sc.restarts = append(sc.restarts, sc.span(d, 2*time.Second))
	}
	for i := range 2 + d.below(3) {
		sc.processes = append(sc.processes, sc.plan(d, string(rune('a'+i))))
	}
	return sc
}

// span draws one within the time of faults.
func (sc *scenario) span(d *dice, longest time.Duration) span {
	from := d.between(0, sc.faults)
	return span{from, min(from+d.between(time.Millisecond, longest), sc.faults)}
}

func (sc *scenario) plan(d *dice, name string) plan {
	p := plan{name: name, fair: sc.fair || sc.mixed && d.permille(500), drift: maxDrift * (2*float64(d.below(1001))/1000 - 1)}
	for i := range 1 + d.below(3) {
		var program []op
		for n := range 2 + d.below(4) {
			program = append(program, sc.op(d, p.fair, fmt.Sprintf("%s%d.%d", name, i, n)))
		}
		p.programs = append(p.programs, program)
	}
	if d.permille(250) {
		p.pauses = append(p.pauses, sc.span(d, 2*sc.ttl))
	}
	if d.permille(250) {
		p.cuts = append(p.cuts, sc.span(d, 2*sc.ttl))
	}
	if d.permille(150) {
		p.dies = append(p.dies, sc.span(d, 2*sc.ttl))
	}
	for _, program := range p.programs {
		for i := range program {
			if o := &program[i]; o.detached && len(p.dies) == 0 { // nothing but its release frees it
				o.opts = append(o.opts, dblock.WithoutRenewal(time.Hour))
			}
		}
	}
	return p
}

func (sc *scenario) op(d *dice, fair bool, label string) op {
	o := op{
		label: label, keys: []string{pick(d, sc.keys...)}, try: d.permille(150),
		think: d.between(time.Millisecond, 500*time.Millisecond), hold: d.between(time.Millisecond, 800*time.Millisecond), writes: d.below(3),
		opts: []dblock.Option{dblock.WithLabel(label)},
	}
	if d.permille(50) {
		o.hold = d.between(0, 2*sc.ttl)
	}
	if d.permille(250) {
		o.wait = d.between(time.Millisecond, sc.ttl)
	}
	switch {
	case fair:
	case sc.kind == sessionLocks:
		if o.writes = 0; d.permille(400) { // they have no fences
			o.mode = dblock.ModeShared
			o.opts = append(o.opts, dblock.WithShared())
		}
		return o
	case d.permille(150):
		o.set, o.keys = true, sc.keys
	case d.permille(200):
		o.mode = dblock.ModePermit
		o.permits = 1 + d.below(permits)
		o.opts = append(o.opts, dblock.WithPermits(o.permits, permits))
	case d.permille(400):
		o.mode = dblock.ModeShared
		o.opts = append(o.opts, dblock.WithShared())
	}
	switch own := d.between(50*time.Millisecond, sc.ttl); d.below(20) {
	case 0:
		o.opts = append(o.opts, dblock.WithMaxHold(own))
	case 1:
		o.detached, o.opts = true, append(o.opts, dblock.WithoutRenewal(own))
	case 2:
		o.expireIn = own
	}
	return o
}
