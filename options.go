package dblock

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Option changes one acquisition.
type Option func(*Request)

// WithMaxHold ends the lock d after its acquisition, by the database's clock, even if the process is healthy: at least
// 1 ms. The process itself ends it earlier, by LeaseOptions.Margin and at most by a quarter of d. Default: the lock is
// held until it is released or its process dies. It excludes WithoutRenewal.
func WithMaxHold(d time.Duration) Option {
	return func(r *Request) {
		r.clashes(r.Detached, "WithMaxHold", "WithoutRenewal")
		r.MaxHold = &d
	}
}

// WithoutRenewal makes the lock last for d from its acquisition, without heartbeats: it ends then even if the process
// lives, and lasts until then even if the process dies. At least 1 ms. The process itself ends it earlier, as with
// WithMaxHold.
func WithoutRenewal(d time.Duration) Option {
	return func(r *Request) {
		r.clashes(r.MaxHold != nil && !r.Detached, "WithMaxHold", "WithoutRenewal")
		r.MaxHold, r.Detached = &d, true
	}
}

// WithShared takes the lock beside others who take it shared, and against those who don't: a reader's lock, and what is taken
// without it a writer's. A writer that waits is let in when those who have the lock now have gone. It excludes WithPermits.
func WithShared() Option {
	return func(r *Request) {
		r.clashes(r.Mode == ModePermit, "WithShared", "WithPermits")
		r.Mode = ModeShared
	}
}

// WithPermits takes n of the permits of the semaphore that is called like the key, all of them or none; there are
// limit of them, 1 to MaxPermits. The first acquisition makes the semaphore, and from then on the number is stored:
// with another limit an acquisition gets a *LimitError (see SetPermits of the leases). A semaphore and a lock may be
// called the same, and have nothing to do with each other. A semaphore is never removed: it is a row, and one for each
// permit.
func WithPermits(n, limit int) Option {
	return func(r *Request) {
		r.clashes(r.Mode == ModeShared, "WithShared", "WithPermits")
		r.Mode, r.Permits, r.Limit = ModePermit, n, limit
	}
}

// WithLabel says for people who holds the lock: at most 255 bytes of UTF-8. Default: that of the Locker.
func WithLabel(label string) Option { return func(r *Request) { r.Label = &label } }

// WithData keeps data beside the lock while it is held, for others to read: at most 64 KiB. Each key of a set
// keeps a copy: at most 16 MiB in all.
func WithData(data []byte) Option { return func(r *Request) { r.Data = data } }

// WithReentrant takes a lock once more that is held further up in the same context, instead of
// ErrDeadlock: same Locker, key and mode. It takes no round trip, and the lock ends with the last
// of them. It keeps the end, the label, the data and the limit of the first. It is an option because Go hands contexts to other goroutines, which are then not kept apart.
func WithReentrant() Option { return func(r *Request) { r.Reentrant = true } }

// Limits of what a Request takes.
const (
	MaxLabelBytes = 255
	MaxDataBytes  = 64 << 10
	MaxPermits    = 10_000
	MaxSetKeys    = 1_000

	maxSetBytes = 16 << 20 // of the data of a set, which is kept beside each of its keys
)

// Request is one acquisition as its options say it. It is for engine rooms.
type Request struct {
	Key       string
	Keys      []string       // where it is for several: in order, with Key as the first
	MaxHold   *time.Duration // nil: no end
	Detached  bool           // it lasts for MaxHold whatever becomes of the process
	Mode      Mode
	Permits   int // how many of Limit, where that is the mode
	Limit     int
	Label     *string // nil: that of the Locker
	Data      []byte
	Reentrant bool

	where [4]uintptr // the calls down to Acquire or TryAcquire
	clash string     // options that exclude each other; empty: there are none
}

// clashes takes note of two options that exclude each other.
func (r *Request) clashes(are bool, one, other string) {
	if are {
		r.clash = one + " and " + other + " exclude each other"
	}
}

// NewRequest applies options, refuses what makes no sense (*InvalidError), and notes who called. It is
// for engine rooms.
func NewRequest(key string, opts []Option) (Request, error) {
	return newRequest(key, opts)
}

// NewSetRequest is NewRequest for several keys, at most MaxSetKeys, each once. They are held by one alone. It is for
// engine rooms.
func NewSetRequest(keys []string, opts []Option) (Request, error) {
	if len(keys) == 0 || len(keys) > MaxSetKeys {
		return Request{}, &InvalidError{"keys", fmt.Sprintf("there are %d, not 1 to %d", len(keys), MaxSetKeys)}
	}
	keys = slices.Sorted(slices.Values(keys))
	for i, key := range keys {
		if err := CheckText("key", key, 1, MaxLockKeyBytes); err != nil {
			return Request{}, err
		}
		if i > 0 && key == keys[i-1] {
			return Request{}, &InvalidError{"keys", fmt.Sprintf("%q is there more than once", key)}
		}
	}
	r, err := newRequest(keys[0], opts)
	if err == nil && r.Mode != ModeExclusive {
		err = &InvalidError{"keys", "a set of them can't be held " + r.Mode.String()}
	}
	if bytes := len(keys) * len(r.Data); err == nil && bytes > maxSetBytes {
		err = &InvalidError{"data", fmt.Sprintf("%d bytes for each of %d keys are %d, more than %d", len(r.Data), len(keys), bytes, maxSetBytes)}
	}
	r.Keys = keys
	return r, err
}

// Set is all that is asked for.
func (r Request) Set() []string {
	if r.Keys == nil {
		return []string{r.Key}
	}
	return r.Keys
}

func newRequest(key string, opts []Option) (Request, error) {
	var r Request
	if len(opts) > 0 {
		var err error
		if r, err = chosen(opts); err != nil {
			return r, err
		}
	}
	r.Key = key
	runtime.Callers(3, r.where[:])
	if err := CheckText("key", key, 1, MaxLockKeyBytes); err != nil {
		return r, err
	}
	if r.Label != nil {
		if err := CheckText("label", *r.Label, 0, MaxLabelBytes); err != nil {
			return r, err
		}
	}
	if len(r.Data) > MaxDataBytes {
		return r, &InvalidError{"data", fmt.Sprintf("it has %d bytes, more than %d", len(r.Data), MaxDataBytes)}
	}
	if r.MaxHold != nil && *r.MaxHold < time.Millisecond {
		return r, &InvalidError{"duration", fmt.Sprintf("%v is shorter than 1ms", *r.MaxHold)}
	}
	if r.Mode == ModePermit {
		return r, checkPermits(r.Permits, r.Limit)
	}
	return r, nil
}

// chosen applies options. It is a function of its own so that a call without options allocates no Request.
func chosen(opts []Option) (r Request, err error) {
	for i, o := range opts {
		if o == nil {
			return r, &InvalidError{fmt.Sprintf("options[%d]", i), "it is nil"}
		}
		o(&r)
	}
	if r.clash != "" {
		return r, &InvalidError{"options", r.clash}
	}
	return r, nil
}

func checkPermits(n, limit int) error {
	if err := CheckLimit(limit); err != nil {
		return err
	}
	if n < 1 || n > limit {
		return &InvalidError{"permits", fmt.Sprintf("%d is not within 1 to the limit of %d", n, limit)}
	}
	return nil
}

// CheckLimit refuses what can't be the number of a semaphore's permits. It is for engine rooms.
func CheckLimit(limit int) error {
	if limit < 1 || limit > MaxPermits {
		return &InvalidError{"limit", fmt.Sprintf("%d is not within 1 to %d", limit, MaxPermits)}
	}
	return nil
}

// CheckText refuses what one of the engines could not store as it is: Postgres takes neither NUL nor
// bytes that are not UTF-8, and so neither engine does. It is for engine rooms.
func CheckText(field, s string, least, most int) error {
	switch {
	case len(s) < least:
		return &InvalidError{field, "it is empty"}
	case len(s) > most:
		return &InvalidError{field, fmt.Sprintf("it has %d bytes, more than %d", len(s), most)}
	case !utf8.ValidString(s):
		return &InvalidError{field, fmt.Sprintf("%q is not valid UTF-8", s)}
	case strings.ContainsRune(s, 0):
		return &InvalidError{field, fmt.Sprintf("%q contains NUL", s)}
	}
	return nil
}
