package dblock

import "time"

// Option changes one acquisition.
type Option func(*request)

// WithMaxHold ends the lock d after its acquisition, by the database's clock, even if the process is healthy: at least
// 1 ms. The process itself ends it earlier, by LeaseOptions.Margin and at most by a quarter of d. Default: the lock is
// held until it is released or its process dies. It excludes WithoutRenewal.
func WithMaxHold(d time.Duration) Option {
	return func(r *request) {
		clashes(r, r.Detached, "WithMaxHold", "WithoutRenewal")
		r.MaxHold = &d
	}
}

// WithoutRenewal makes the lock last for d from its acquisition, without heartbeats: it ends then even if the process
// lives, and lasts until then even if the process dies. At least 1 ms. The process itself ends it earlier, as with
// WithMaxHold.
func WithoutRenewal(d time.Duration) Option {
	return func(r *request) {
		clashes(r, r.MaxHold != nil && !r.Detached, "WithMaxHold", "WithoutRenewal")
		r.MaxHold, r.Detached = &d, true
	}
}

// WithShared takes the lock beside others who take it shared, and against those who don't: a reader's lock, and what is taken
// without it a writer's. A writer that waits is let in when those who have the lock now have gone. It excludes WithPermits.
func WithShared() Option {
	return func(r *request) {
		clashes(r, r.Mode == ModePermit, "WithShared", "WithPermits")
		r.Mode = ModeShared
	}
}

// WithPermits takes n of the permits of the semaphore that is called like the key, all of them or none; there are
// limit of them, 1 to MaxPermits. The first acquisition makes the semaphore, and from then on the number is stored:
// with another limit an acquisition gets a *LimitError (see SetPermits of the leases). A semaphore and a lock may be
// called the same, and have nothing to do with each other. A semaphore is never removed: it is a row, and one for each
// permit.
func WithPermits(n, limit int) Option {
	return func(r *request) {
		clashes(r, r.Mode == ModeShared, "WithShared", "WithPermits")
		r.Mode, r.Permits, r.Limit = ModePermit, n, limit
	}
}

// WithLabel says for people who holds the lock: at most 255 bytes of UTF-8. Default: that of the Locker.
func WithLabel(label string) Option { return func(r *request) { r.Label = &label } }

// WithData keeps data beside the lock while it is held, for others to read: at most 64 KiB. Each key of a set
// keeps a copy: at most 16 MiB in all.
func WithData(data []byte) Option { return func(r *request) { r.Data = data } }

// WithReentrant takes a lock once more that is held further up in the same context, instead of
// ErrDeadlock: same Locker, key and mode. It takes no round trip, and the lock ends with the last
// of them. It keeps the end, the label, the data and the limit of the first. It is an option because Go hands contexts to other goroutines, which are then not kept apart.
func WithReentrant() Option { return func(r *request) { r.Reentrant = true } }

// Limits of what an acquisition takes.
const (
	MaxLabelBytes = 255
	MaxDataBytes  = 64 << 10
	MaxPermits    = 10_000
	MaxSetKeys    = 1_000

	maxSetBytes = 16 << 20 // of the data of a set, which is kept beside each of its keys
)
