package locksim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// checker knows what the processes believe, and what the server has. World.mu guards it.
type checker struct {
	w       *world
	history []string
	wrong   []string
	calls   map[string]*call // by label
	holds   []*hold
	open    []*hold // those that are not over, and those under release
	tickets map[string][]ticket
	members map[member.ID]time.Duration // when they expire
	of      map[member.ID]string        // the processes that they are of
	written map[string]int64            // by key, the highest token under which a write was accepted
}

func newChecker(w *world) checker {
	return checker{
		w: w, calls: map[string]*call{}, tickets: map[string][]ticket{}, members: map[member.ID]time.Duration{},
		of: map[member.ID]string{}, written: map[string]int64{},
	}
}

// call is one of Acquire.
type call struct {
	p     *process
	op    op
	began time.Duration
	over  bool
	err   error
}

// hold is a lock, from the return of Acquire until its context ends or its release begins.
type hold struct {
	p        *process
	op       op
	lock     *dblock.Lock
	fences   []dblock.Fence
	from, to time.Duration
	over     bool
	granted  time.Duration // at the earliest: its reply may have come late
	gone     bool          // the server had it no more before its release began
	kept     bool          // its release has said that it was held until then
}

// ticket is a call that the server knows to wait.
type ticket struct {
	by     member.ID
	handle lease.Handle
	label  string
	at     time.Duration
}

func (j *checker) note(line string) {
	j.history = append(j.history, fmt.Sprintf("%13.9fs %s", j.w.now().Seconds(), line))
}

func (j *checker) find(format string, args ...any) {
	what := "WRONG: " + fmt.Sprintf(format, args...)
	j.note(what)
	j.wrong = append(j.wrong, what)
}

func (w *world) wrong(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.find(format, args...)
}

// called notes that a call begins.
func (w *world) called(p *process, o op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.calls[o.label] = &call{p: p, op: o, began: w.now()}
	w.checker.note(o.String())
}

// refused notes that a call has returned an error.
func (w *world) refused(o op, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.checker.calls[o.label]
	c.over, c.err = true, err
	w.checker.note(o.label + " did not acquire: " + text(err))
	known := []error{dblock.ErrNotAcquired, dblock.ErrBusy, dblock.ErrUnavailable, dblock.ErrOutcomeUnknown}
	if w.kind == sessionLocks {
		known = append(known[:3], dblock.ErrOverloaded)
	}
	if !slices.ContainsFunc(known, func(is error) bool { return errors.Is(err, is) }) {
		w.checker.find("%s got an error without a name: %v", o.label, err)
	}
}

// holds notes that a call has returned a lock.
func (w *world) holds(p *process, o op, lock *dblock.Lock) *hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := &w.checker
	c := j.calls[o.label]
	c.over = true
	h := &hold{p: p, op: o, lock: lock, fences: lock.Fences(), from: w.now(), granted: w.now()}
	if w.sessions != nil && !w.sessions.grantedTo(p, o.keys[0]) {
		h.granted = c.began
	}
	j.holds, j.open = append(j.holds, h), append(j.open, h)
	j.note(fmt.Sprintf("%s holds %v with %d", o.label, o.keys, h.token(o.keys[0])))
	for _, t := range j.tickets[o.keys[0]] {
		if of := j.calls[t.label]; w.fair && t.at < c.began && !of.over && !of.p.isDead() && j.members[t.by] > w.now() {
			j.find("%s was served before %s, whose ticket is older than the call", o.label, t.label)
		}
	}
	return h
}

// ended notes that a hold is over for its process.
func (w *world) ended(h *hold, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.end(h, how)
}

func (j *checker) end(h *hold, how string) {
	if h.over {
		return
	}
	h.over, h.to = true, j.w.now()
	if trusted := h.trustedUntil(); trusted < h.to && h.p.stoodStill(trusted) {
		h.to = max(h.from, trusted) // it did nothing meanwhile
	}
	j.note(h.op.label + " " + how)
}

// trustedUntil is the moment when the process's clock shows ValidUntil.
func (h *hold) trustedUntil() time.Duration { return h.p.clock.moment(h.lock.ValidUntil()) }

// released notes what Release has returned.
func (w *world) released(h *hold, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.note(h.op.label + " has released: " + text(err))
	w.checker.open = slices.DeleteFunc(w.checker.open, func(o *hold) bool { return o == h })
	h.kept = err == nil
	var lost *dblock.LostError
	if errors.As(err, &lost) && lost.Reason == dblock.ReasonStolen && !h.gone {
		w.checker.find("%s was stolen, says Release, and the server had it until then", h.op.label)
	}
	if err != nil && lost == nil {
		w.checker.find("the release of %s got an error without a name: %v", h.op.label, err)
	}
}

// dies notes that a process is killed.
func (w *world) dies(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.note(p.name + " is killed")
	for _, h := range w.checker.open {
		if h.p == p {
			w.checker.end(h, "ends with its process")
		}
	}
	w.checker.open = slices.DeleteFunc(w.checker.open, func(h *hold) bool { return h.p == p })
	close(p.dead)
}

// stillHeld reports whether the server has a hold still.
func (j *checker) stillHeld(h *hold) bool {
	for _, f := range h.fences {
		if !j.w.server.IsHeld(lease.ReleaseRequest{Key: f.Key, Token: f.Token, Handle: f.Handle, Mode: f.Mode}) {
			return false
		}
	}
	return true
}

// look compares what processes believe with what the server has, after a statement of a process.
func (j *checker) look(by *process) {
	now := j.w.now()
	for _, h := range j.open {
		if h.gone || j.stillHeld(h) {
			continue
		}
		if h.gone = !h.over || h.p != by; h.over { // else it was its own release
			continue
		}
		if !h.p.stoodStill(now) || now < h.trustedUntil() {
			j.find("%s trusts its lock, and the server has it no more", h.op.label)
		}
	}
	for key, tickets := range j.tickets {
		j.tickets[key] = slices.DeleteFunc(tickets, func(t ticket) bool {
			granted := lease.ReleaseRequest{Key: key, Handle: t.handle}
			return j.members[t.by] <= now || j.w.server.Admin().Keeps(t.by, granted) || j.w.server.Admin().Keeps(member.ID{}, granted)
		})
	}
}

// answered notes what the server has granted.
func (j *checker) answered(a lease.AcquireRequest, got lease.AcquireResult) {
	if got.Token == 0 {
		return
	}
	if c := j.calls[a.Label]; c != nil && c.over && c.err != nil && !errors.Is(c.err, dblock.ErrOutcomeUnknown) {
		j.find("%s was granted after its call had returned %v", a.Label, c.err)
	}
}

// enqueued notes that the server knows of a call that waits.
func (j *checker) enqueued(by lease.By, a lease.AcquireRequest) {
	j.tickets[a.Key] = append(j.tickets[a.Key], ticket{by.Member, a.Handle, a.Label, j.w.now()})
	if c := j.calls[a.Label]; c.over && c.err != nil && !errors.Is(c.err, dblock.ErrOutcomeUnknown) {
		j.find("%s got a ticket after its call had returned %v", a.Label, c.err)
	}
}

// returned notes that what waits under a handle waits no more.
func (j *checker) returned(b lease.ReleaseRequest) {
	j.tickets[b.Key] = slices.DeleteFunc(j.tickets[b.Key], func(t ticket) bool { return t.handle == b.Handle })
}

// wrote notes that a write was accepted. Holders of one semaphore have tokens in no order.
func (j *checker) wrote(h *hold) {
	for _, f := range h.fences {
		if f.Mode == dblock.ModePermit {
			continue
		}
		if f.Token < j.written[f.Key] {
			j.find("%s wrote to %s with token %d after another one with %d", h.op.label, f.Key, f.Token, j.written[f.Key])
		}
		j.written[f.Key] = max(j.written[f.Key], f.Token)
	}
}

// said is what the server answers, in words.
func (j *checker) said(asks []lease.AcquireRequest, answers []lease.AcquireResult) string {
	said := make([]string, len(asks))
	for i, a := range answers {
		switch {
		case a.Token != 0:
			said[i] = fmt.Sprintf("granted %d", a.Token)
		case a.MemberGone:
			said[i] = "the member is gone"
		case a.Held:
			said[i] = "held by " + a.Holder.Label
		case a.Shared:
			said[i] = "readers may be there"
		default:
			said[i] = "not granted"
		}
		if a.Holder.Dead {
			said[i] += ", which is dead"
		}
	}
	return strings.Join(said, ", ")
}
