package dblock

import "time"

// Option changes one acquisition. Make it with the functions below.
type Option func(*request)

// WithMaxHold ends the lock d after its acquisition, by the database's clock, even if the process
// is healthy. d is at least 1 ms. The process itself ends the lock earlier, by LeaseOptions.Margin
// and at most by a quarter of d. A lock whose time is up needs no Release. Default: the lock is
// held until it is released or its process dies. WithMaxHold and WithoutRenewal exclude each other.
func WithMaxHold(d time.Duration) Option {
	return func(r *request) {
		clashes(r, r.Detached, "WithMaxHold", "WithoutRenewal")
		r.MaxHold = &d
	}
}

// WithoutRenewal makes the lock last for d from its acquisition, without heartbeats: it ends then
// even if the process lives, and lasts until then even if the process dies. d is at least 1 ms. The
// process itself ends the lock earlier, as with WithMaxHold. A lock whose time is up needs no
// Release.
func WithoutRenewal(d time.Duration) Option {
	return func(r *request) {
		clashes(r, r.MaxHold != nil && !r.Detached, "WithMaxHold", "WithoutRenewal")
		r.MaxHold, r.Detached = &d, true
	}
}

// WithShared acquires the lock in shared mode: shared holders coexist, and an exclusive holder
// excludes them. A waiting exclusive caller acquires the lock when the present holders have
// released it: later shared callers wait behind it. WithShared and WithPermits exclude each other.
func WithShared() Option {
	return func(r *request) {
		clashes(r, r.Mode == ModePermit, "WithShared", "WithPermits")
		r.Mode = ModeShared
	}
}

// WithPermits acquires n permits of the semaphore with the name key, all of them or none. The
// semaphore has limit permits, 1 to MaxPermits. The first acquisition creates it and stores the
// limit: an acquisition with another limit returns a *LimitError (see SetPermits of the lease
// lockers). A semaphore and a lock of the same name are independent. A semaphore is never removed:
// it is a row, and one for each permit.
func WithPermits(n, limit int) Option {
	return func(r *request) {
		clashes(r, r.Mode == ModeShared, "WithShared", "WithPermits")
		r.Mode, r.Permits, r.Limit = ModePermit, n, limit
	}
}

// WithLabel names the holder for people, in at most 255 bytes of UTF-8. Default: the label of the
// Locker.
func WithLabel(label string) Option { return func(r *request) { r.Label = &label } }

// WithData stores data beside the lock while it is held, for others to read: at most 64 KiB. Each
// key of a set has a copy: at most 16 MiB in all.
func WithData(data []byte) Option { return func(r *request) { r.Data = data } }

// WithReentrant acquires a lock once more that the same context holds further up, with the same
// Locker, key and mode. Without it the error is a *DeadlockError. It takes no round trip, and the
// lock ends with the last release. The end, the label, the data and the limit of the first
// acquisition stay. It is an option because Go passes contexts to other goroutines, and a reentrant
// lock does not exclude these from each other.
func WithReentrant() Option { return func(r *request) { r.Reentrant = true } }

// Limits of what an acquisition takes.
const (
	MaxLabelBytes = 255
	MaxDataBytes  = 64 << 10
	MaxPermits    = 10_000
	MaxSetKeys    = 1_000

	maxSetBytes = 16 << 20 // of the data of a set, which is kept beside each of its keys
)
