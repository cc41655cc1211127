package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// acquisitions are the ways to hold a key for which other processes have to wait.
var acquisitions = map[string]func(*testing.T, *lease.Locker) *dblock.Lock{
	"exclusive": acquire,
	"shared":    with(dblock.WithShared()),
	"permits":   with(dblock.WithPermits(2, 2)),
	"set": func(t *testing.T, l *lease.Locker) *dblock.Lock {
		t.Helper()
		lock, err := l.AcquireAll(t.Context(), []string{"a", key})
		if err != nil {
			t.Fatal(err)
		}
		return lock
	},
}

func with(opts ...dblock.Option) func(*testing.T, *lease.Locker) *dblock.Lock {
	return func(t *testing.T, l *lease.Locker) *dblock.Lock {
		t.Helper()
		lock, err := l.Acquire(t.Context(), key, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
}

// takesOver acquires the key as another process once it is free, and fails if lock is held then.
func takesOver(t *testing.T, s *memlease.Server, mode string, lock *dblock.Lock) {
	t.Helper()
	var opts []dblock.Option
	if mode == "permits" {
		opts = append(opts, dblock.WithPermits(1, 2))
	}
	other := newProcess(s).locker(t, lease.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next, err := other.Acquire(ctx, key, opts...)
	if err != nil {
		t.Error(err)
		return
	}
	if lock.Context().Err() == nil {
		t.Error("two hold the key")
	}
	release(t, next)
}

// TestExpireInWithoutAnAnswer: the end may have moved, so the lock ends then, and a later call does
// not move it out. The statement that was not answered may take effect at any time.
func TestExpireInWithoutAnAnswer(t *testing.T) {
	for mode, take := range acquisitions {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p, calls := newProcess(s), 0
				l := p.locker(t, lease.Options{})
				lock := take(t, l)
				var backs []lease.ReleaseRequest
				for _, f := range lock.Fences() {
					backs = append(backs, lease.ReleaseRequest{Key: f.Key, Token: f.Token, Handle: f.Handle, Mode: f.Mode})
				}
				p.disturb(func(_ context.Context, call string, run func() error) error {
					if call != "ExpireIn" {
						return run()
					}
					switch calls++; calls {
					case 1:
						return &memlease.Failure{As: sqlerr.Unresolved, Err: errors.New("lost")}
					case 2:
						err := run()
						_, late := p.driver.ExpireIn(t.Context(), backs, time.Second)
						return errors.Join(err, late)
					}
					return run()
				})
				if err := lock.ExpireIn(t.Context(), time.Second); !errors.Is(err, dblock.ErrOutcomeUnknown) {
					t.Errorf("got %v", err)
				}
				if left := time.Until(lock.ValidUntil()); left >= time.Second {
					t.Errorf("valid for %v", left)
				}
				if err := lock.ExpireIn(t.Context(), time.Hour); err != nil {
					t.Error(err)
				}
				takesOver(t, s, mode, lock)
				if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
					t.Errorf("released: %v", err)
				}
			})
		})
	}
}

// TestExpireInTwoAtOnce: the answer of the first call comes last. Whatever order the server sees,
// no other caller acquires the key before the lock has ended.
func TestExpireInTwoAtOnce(t *testing.T) {
	for mode, take := range acquisitions {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p := newProcess(s)
				l := p.locker(t, lease.Options{})
				lock := take(t, l)
				var calls atomic.Int32
				p.disturb(func(_ context.Context, call string, run func() error) error {
					err := run()
					if call == "ExpireIn" && calls.Add(1) == 1 {
						time.Sleep(100 * time.Millisecond)
					}
					return err
				})
				ended := make(chan error, 2)
				for _, d := range []time.Duration{time.Hour, time.Second} {
					go func() { ended <- lock.ExpireIn(t.Context(), d) }()
					synctest.Wait()
				}
				for range 2 {
					if err := <-ended; err != nil {
						t.Error(err)
					}
				}
				takesOver(t, s, mode, lock)
				_ = lock.Release(t.Context())
			})
		})
	}
}

// TestExpireInRefused: nothing was written, so the end is what it was.
func TestExpireInRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l := p.locker(t, lease.Options{})
		lock := with(dblock.WithMaxHold(time.Hour))(t, l)
		before := lock.ValidUntil()
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call == "ExpireIn" {
				return &memlease.Failure{As: sqlerr.Busy, Err: errors.New("locked")}
			}
			return run()
		})
		if err := lock.ExpireIn(t.Context(), time.Second); !errors.Is(err, dblock.ErrBusy) || !lock.ValidUntil().Equal(before) {
			t.Errorf("%v, valid until %v, before %v", err, lock.ValidUntil(), before)
		}
		time.Sleep(2 * time.Second)
		if lock.Context().Err() != nil {
			t.Errorf("ended: %v", context.Cause(lock.Context()))
		}
		release(t, lock)
		var lost *dblock.LostError
		if err := lock.ExpireIn(t.Context(), time.Second); !errors.As(err, &lost) || lost.Reason != dblock.ReasonReleased {
			t.Errorf("of a released lock: %v", err)
		}
	})
}

// TestExpireInEndsWhileRefused: the lock ended while the server had not replied, and the error says
// so.
func TestExpireInEndsWhileRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		lock := with(dblock.WithMaxHold(time.Hour))(t, p.locker(t, lease.Options{}))
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call != "ExpireIn" {
				return run()
			}
			time.Sleep(300 * time.Millisecond)
			return &memlease.Failure{As: sqlerr.Busy, Err: errors.New("locked")}
		})
		err := lock.ExpireIn(t.Context(), 100*time.Millisecond)
		var lost *dblock.LostError
		if !errors.As(err, &lost) || lost.Reason != dblock.ReasonTimeUp || lock.Context().Err() == nil {
			t.Errorf("%v, and the context's error is %v", err, lock.Context().Err())
		}
		_ = lock.Release(t.Context())
	})
}

// TestExpireInEndsBeforeTheReply: the lock's time was up while the reply was under way. The error
// says so, or that the outcome is unknown, and the key is free soon, without a Release.
func TestExpireInEndsBeforeTheReply(t *testing.T) {
	for mode, take := range acquisitions {
		for want, reply := range map[error]error{
			dblock.ErrLost: nil, dblock.ErrOutcomeUnknown: &memlease.Failure{As: sqlerr.Unresolved, Err: errors.New("lost")},
		} {
			t.Run(mode+"/"+want.Error(), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memlease.Server) {
					p, calls := newProcess(s), 0
					lock := take(t, p.locker(t, lease.Options{}))
					p.disturb(func(_ context.Context, call string, run func() error) error {
						if call != "ExpireIn" {
							return run()
						}
						err := run()
						if calls++; calls == 2 {
							time.Sleep(time.Second)
							err = reply
						}
						return err
					})
					if err := lock.ExpireIn(t.Context(), 500*time.Millisecond); err != nil {
						t.Error(err)
					}
					if err := lock.ExpireIn(t.Context(), time.Hour); !errors.Is(err, want) {
						t.Errorf("got %v", err)
					}
					if why := context.Cause(lock.Context()); !errors.Is(why, dblock.ErrLost) {
						t.Errorf("the lock's context: %v", why)
					}
					takesOver(t, s, mode, lock)
				})
			})
		}
	}
}

// TestEndsAMarginEarlier: the margin of a lock that ends by time is the member's, and a quarter of
// a short hold.
func TestEndsAMarginEarlier(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		l := newProcess(s).locker(t, lease.Options{})
		for d, margin := range map[time.Duration]time.Duration{
			100 * time.Millisecond: 25 * time.Millisecond, 2 * time.Second: 500 * time.Millisecond, time.Hour: ttl / 10,
		} {
			for how, opt := range map[string]dblock.Option{"WithMaxHold": dblock.WithMaxHold(d), "WithoutRenewal": dblock.WithoutRenewal(d)} {
				began := time.Now()
				lock := with(opt)(t, l)
				<-lock.Context().Done()
				if lasted := time.Since(began); lasted != d-margin {
					t.Errorf("%s(%v) lasted %v", how, d, lasted)
				}
				_ = lock.Release(t.Context())
			}
			lock := acquire(t, l)
			began := time.Now()
			if err := lock.ExpireIn(t.Context(), d); err != nil {
				t.Error(err)
			}
			<-lock.Context().Done()
			if lasted := time.Since(began); lasted != d-margin {
				t.Errorf("ExpireIn(%v) lasted %v", d, lasted)
			}
			_ = lock.Release(t.Context())
		}
	})
}
