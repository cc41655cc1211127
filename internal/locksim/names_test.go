package locksim

import (
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// Handles and members are random, and so not repeated by a seed. What belongs to them has names
// that are.

// name names what a batch asks for.
func (w *world) name(asks []lease.AcquireRequest) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := make([]string, len(asks))
	for i, a := range asks {
		w.labels[a.Handle] = a.Label
		names[i] = a.Label + "/" + a.Key
	}
	return strings.Join(names, " ")
}

// nameBacks names what is released.
func (w *world) nameBacks(backs []lease.ReleaseRequest) string {
	names := make([]string, len(backs))
	for i, b := range backs {
		names[i] = w.nameOf(b.Handle) + "/" + b.Key
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (w *world) nameOf(handle lease.Handle) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.labels[handle]
}

// topic names what a notification is about.
func (w *world) topic(key string) string {
	var handle lease.Handle
	told, is := strings.CutPrefix(key, lease.TicketPrefix)
	if !is {
		return key
	}
	if _, err := hex.Decode(handle[:], []byte(told)); err != nil {
		return told
	}
	return w.nameOf(handle)
}

// nameOfMember names the process of a member.
func (w *world) nameOfMember(id member.ID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checker.of[id]
}

var random = regexp.MustCompile(`[0-9a-f]{32}`)

// text is an error without what is random in it.
func text(err error) string {
	if err == nil {
		return "done"
	}
	return random.ReplaceAllString(err.Error(), "…")
}
