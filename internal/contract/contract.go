// Package contract holds what the root package shares with the packages that implement its Lockers,
// and with no others. The root package imports it. Others use package internal/root, which has the
// types of the root package in place of type parameters.
package contract

import (
	"context"
	"time"
)

// Request is one acquisition, after its options were applied and checked. M is dblock.Mode.
type Request[M any] struct {
	Key       string
	Keys      []string       // of a set: in order, with Key as the first; nil: Key alone
	MaxHold   *time.Duration // nil: no end
	Detached  bool           // it lasts for MaxHold whatever becomes of the process
	Mode      M
	Permits   int // how many of Limit, in the mode of permits
	Limit     int
	Label     *string // nil: that of the Locker
	Data      []byte
	Reentrant bool

	Where [4]uintptr // the calls down to Acquire or TryAcquire
	Clash string     // two options that exclude each other; empty: there are none
}

// Set returns all keys that are asked for.
func (r Request[M]) Set() []string {
	if r.Keys == nil {
		return []string{r.Key}
	}
	return r.Keys
}

// Hold is a backend's side of a lock. F is dblock.Fence.
type Hold[F any] interface {
	Fences() []F
	ValidUntil() time.Time
	ExpireIn(ctx context.Context, d time.Duration) error

	// Check loses the lock if ValidUntil has passed. A process that was stopped may run on before
	// its timers do.
	Check()

	// Release is called once, after the last use of the lock, also if it was lost before. It bounds
	// itself. The error is that of a server that refuses the release.
	Release(ctx context.Context, lost bool) error
}

// Root has the methods that package internal/root passes on, which lists them. The root package
// sets it when it is initialized. Its type is lost on the way, because this package can't name the
// root package's types.
var Root any
