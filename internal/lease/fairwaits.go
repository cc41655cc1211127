package lease

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// await has a turn woken when its handle is notified.
func (w *Waits) await(t *fairWaiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fair == nil {
		w.fair = make(map[string]*fairWaiter)
	}
	w.fair[t.request.Handle.String()] = t
	signal(w.calls)
}

// number notes the ticket that a call was given.
func (w *Waits) number(t *fairWaiter, ticket int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.ticket = ticket
}

// maxFairOfKey is how many calls of this process the server looks for, of one key. A key is granted
// in the order of the tickets, so the others come later.
const maxFairOfKey = 4

// fairToWatch returns the handles of the calls that are served first of their keys, and these
// keys: at most so many handles, of the keys that were waited for longest. All calls of these keys
// are watched from now on, and no others.
func (w *Waits) fairToWatch(most int) (keys []string, turns []Handle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	byKey := make(map[string][]*fairWaiter)
	for _, t := range w.fair {
		byKey[t.request.Key] = append(byKey[t.request.Key], t)
	}
	all := slices.Collect(maps.Values(byKey))
	for _, of := range all {
		slices.SortFunc(of, byTicket)
	}
	slices.SortFunc(all, func(a, b []*fairWaiter) int { return a[0].sent.Compare(b[0].sent) })
	for _, of := range all {
		first := of[:min(len(of), maxFairOfKey, most-len(turns))]
		if len(first) > 0 {
			keys = append(keys, of[0].request.Key)
		}
		for _, t := range first {
			turns = append(turns, t.request.Handle)
		}
		for _, t := range of {
			if t.watched && len(first) == 0 {
				signal(t.woken)
			}
			t.watched = len(first) > 0
		}
	}
	return keys, turns
}

// byTicket compares turns by their tickets. A call that has none yet, 0, comes last.
func byTicket(a, b *fairWaiter) int { return cmp.Compare(uint64(a.ticket-1), uint64(b.ticket-1)) }

// wakeFair wakes the call that has a key now. If the key is free, it wakes the first call of this
// process.
func (w *Waits) wakeFair(s LeaseState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.fair[s.Handle.String()]; t != nil {
		signal(t.woken)
		return
	}
	var first *fairWaiter
	for _, t := range w.fair {
		if t.request.Key == s.Key && t.ticket != 0 && (first == nil || byTicket(t, first) < 0) {
			first = t
		}
	}
	if first != nil {
		signal(first.woken)
	}
}

// isNotifiedOfTicket reports whether this process is notified when a call has the key.
func (w *Waits) isNotifiedOfTicket(t *fairWaiter) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notified || t.watched
}

func (w *Waits) removeFair(t *fairWaiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.fair, t.request.Handle.String())
}

// TicketPrefix begins what a notification says of a turn: its handle follows. A key may begin so,
// too.
const TicketPrefix = "\x01"

// wakeTicket wakes the turn that a notification names. It returns false if that is no turn of this
// process.
func (w *Waits) wakeTicket(payload string) bool {
	handle, is := strings.CutPrefix(payload, TicketPrefix)
	if !is {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.fair[handle]
	if t != nil {
		signal(t.woken)
	}
	return t != nil
}
