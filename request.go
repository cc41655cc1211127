package dblock

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dblock-go/dblock/internal/contract"
)

// request is one acquisition. Options fill it; only this module can name its type.
type request = contract.Request[Mode]

// clashes takes note of two options that exclude each other.
func clashes(r *request, are bool, one, other string) {
	if are {
		r.Clash = one + " and " + other + " exclude each other"
	}
}

// newSetRequest is newRequest for several keys, at most MaxSetKeys, each once. They are held by one
// alone.
func newSetRequest(skip int, keys []string, opts []Option) (request, error) {
	if len(keys) == 0 || len(keys) > MaxSetKeys {
		return request{}, &InvalidError{"keys", fmt.Sprintf("there are %d, not 1 to %d", len(keys), MaxSetKeys)}
	}
	keys = slices.Sorted(slices.Values(keys))
	for i, key := range keys {
		if err := checkText("key", key, 1, MaxLockKeyBytes); err != nil {
			return request{}, err
		}
		if i > 0 && key == keys[i-1] {
			return request{}, &InvalidError{"keys", fmt.Sprintf("%q is there more than once", key)}
		}
	}
	r, err := newRequest(skip+1, keys[0], opts)
	if err == nil && r.Mode != ModeExclusive {
		err = &InvalidError{"keys", "a set of them can't be held " + r.Mode.String()}
	}
	if bytes := len(keys) * len(r.Data); err == nil && bytes > maxSetBytes {
		err = &InvalidError{"data", fmt.Sprintf("%d bytes for each of %d keys are %d, more than %d", len(r.Data), len(keys), bytes, maxSetBytes)}
	}
	r.Keys = keys
	return r, err
}

// newRequest applies options and refuses what makes no sense (*InvalidError). It notes the calls on
// the stack, but for the innermost skip of them, its own included.
func newRequest(skip int, key string, opts []Option) (request, error) {
	var r request
	if len(opts) > 0 {
		var err error
		if r, err = chosen(opts); err != nil {
			return r, err
		}
	}
	r.Key = key
	runtime.Callers(1+skip, r.Where[:])
	if err := checkText("key", key, 1, MaxLockKeyBytes); err != nil {
		return r, err
	}
	if r.Label != nil {
		if err := checkText("label", *r.Label, 0, MaxLabelBytes); err != nil {
			return r, err
		}
	}
	if len(r.Data) > MaxDataBytes {
		return r, &InvalidError{"data", fmt.Sprintf("it has %d bytes, more than %d", len(r.Data), MaxDataBytes)}
	}
	if r.MaxHold != nil && *r.MaxHold < time.Millisecond {
		return r, &InvalidError{"duration", fmt.Sprintf("%v is shorter than 1ms", *r.MaxHold)}
	}
	switch r.Mode {
	case ModeExclusive, ModeShared:
		return r, nil
	case ModePermit:
		return r, checkPermits(r.Permits, r.Limit)
	}
	return r, &InvalidError{"mode", fmt.Sprintf("there is no mode %d", r.Mode)}
}

// chosen applies options. It is a function of its own so that a call without options allocates no
// request.
func chosen(opts []Option) (r request, err error) {
	for i, o := range opts {
		if o == nil {
			return r, &InvalidError{fmt.Sprintf("options[%d]", i), "it is nil"}
		}
		o(&r)
	}
	if r.Clash != "" {
		return r, &InvalidError{"options", r.Clash}
	}
	return r, nil
}

func checkPermits(n, limit int) error {
	if err := checkLimit(limit); err != nil {
		return err
	}
	if n < 1 || n > limit {
		return &InvalidError{"permits", fmt.Sprintf("%d is not within 1 to the limit of %d", n, limit)}
	}
	return nil
}

// checkLimit refuses what can't be the number of a semaphore's permits.
func checkLimit(limit int) error {
	if limit < 1 || limit > MaxPermits {
		return &InvalidError{"limit", fmt.Sprintf("%d is not within 1 to %d", limit, MaxPermits)}
	}
	return nil
}

// checkText refuses what one of the engines could not store as it is: Postgres takes neither NUL
// nor bytes that are not UTF-8, and so neither engine does.
func checkText(field, s string, least, most int) error {
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
