package dblock

import (
	"fmt"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"
)

// Option changes one acquisition.
type Option func(*Request)

// WithMaxHold ends the lock d after it was acquired, by the database's clock, however well the
// process is: at least 1 ms. Default: it is held for as long as its process lives and does not release it.
func WithMaxHold(d time.Duration) Option { return func(r *Request) { r.MaxHold = &d } }

// WithoutRenewal has the lock last for d from its acquisition, and no heartbeat has a part in it: it
// ends then even where the process lives, and lasts till then even where the process dies. At least 1 ms.
func WithoutRenewal(d time.Duration) Option {
	return func(r *Request) { r.MaxHold, r.Detached = &d, true }
}

// WithShared takes the lock beside others who take it shared, and against those who don't.
func WithShared() Option { return func(r *Request) { r.Shared = true } }

// WithLabel says for people who holds the lock: at most 255 bytes of UTF-8. Default: that of the Locker.
func WithLabel(label string) Option { return func(r *Request) { r.Label = &label } }

// WithData keeps data beside the lock while it is held, for others to read: at most 64 KiB.
func WithData(data []byte) Option { return func(r *Request) { r.Data = data } }

// WithReentrant takes a lock once more that is held further up in the same context, instead of
// ErrDeadlock: same Locker, key and mode. It takes no round trip, and the lock ends with the last
// of them. It is an option because Go hands contexts to other goroutines, which are then not kept apart.
func WithReentrant() Option { return func(r *Request) { r.Reentrant = true } }

// Limits of what a Request takes.
const (
	MaxLabelBytes = 255
	MaxDataBytes  = 64 << 10
)

// Request is one acquisition as its options say it. It is for engine rooms.
type Request struct {
	Key       string
	MaxHold   *time.Duration // nil: no end
	Detached  bool           // it lasts for MaxHold whatever becomes of the process
	Shared    bool
	Label     *string // nil: that of the Locker
	Data      []byte
	Reentrant bool

	where [4]uintptr // the calls down to Acquire or TryAcquire
}

// NewRequest applies options, refuses what makes no sense (*InvalidError), and notes who called. It is
// for engine rooms.
func NewRequest(key string, opts []Option) (Request, error) {
	r := Request{Key: key}
	for _, o := range opts {
		o(&r)
	}
	runtime.Callers(2, r.where[:])
	if err := CheckText("key", key, 1, MaxKeyBytes); err != nil {
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
	return r, nil
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
