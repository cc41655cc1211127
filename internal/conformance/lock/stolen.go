package lock

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// stolenTTL is a TTL of whose third a busy machine has time to read what it holds.
const stolenTTL = 8 * time.Second

// aStolenLockIsLost releases what a live process holds, as an operator does, in every mode: its context ends within the
// TTL, while another process holds the key, and the release says so.
func aStolenLockIsLost(t *testing.T, v Place) {
	a, b := v.process(t, LeaseOptions{TTL: stolenTTL}), v.process(t, LeaseOptions{})
	locks := map[string]*dblock.Lock{
		"alone":    suite.Acquire(t, a, "alone"),
		"reader":   suite.Acquire(t, a, "reader", dblock.WithShared()),
		"permits":  suite.Acquire(t, a, "permits", dblock.WithPermits(2, 2)),
		"detached": suite.Acquire(t, a, "detached", dblock.WithoutRenewal(time.Hour)),
	}
	set, err := a.AcquireAll(suite.Soon(t), []string{"s1", "s2", "s3"})
	if err != nil {
		t.Fatal(err)
	}
	locks["s2"] = set
	kept := suite.Acquire(t, a, "kept")
	next := map[string]*dblock.Lock{}
	for key, lock := range locks {
		for _, f := range lock.Fences() {
			if f.Key == key {
				if err := b.ForceRelease(t.Context(), key, f.Token); err != nil {
					t.Fatal(err)
				}
			}
		}
		whole := []dblock.Option{}
		if key == "permits" {
			whole = append(whole, dblock.WithPermits(2, 2))
		}
		next[key] = suite.Acquire(t, b, key, whole...)
	}
	began := time.Now()
	for key, lock := range locks {
		suite.IsLost(t, lock, dblock.Stolen)
		t.Logf("%s: noticed after %v", key, time.Since(began))
		if err := lock.ExpireIn(t.Context(), time.Hour); !errors.Is(err, dblock.ErrLost) {
			t.Errorf("%s: ExpireIn: %v", key, err)
		}
		suite.Release(t, next[key])
	}
	suite.Release(t, suite.Acquire(t, b, "s1")) // the rest of the set was given back
	if kept.Context().Err() != nil {
		t.Error("another lock of the process was lost")
	}
	suite.Release(t, kept)
}

// aForgottenGrantIsLost takes grants out of the tables, as a failover to a replica does that has not received them. The
// member's row is there: heartbeats go on.
func aForgottenGrantIsLost(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{TTL: stolenTTL})
	locks := []*dblock.Lock{
		suite.Acquire(t, l, "alone"), suite.Acquire(t, l, "reader", dblock.WithShared()), suite.Acquire(t, l, "permits", dblock.WithPermits(2, 3)),
		suite.Acquire(t, l, "row", dblock.WithLabel("forgotten")),
	}
	v.exec(t, "UPDATE dblock_lease SET handle = NULL, member_id = NULL WHERE lease_key = 'alone'")
	v.exec(t, "DELETE FROM dblock_lease WHERE lease_key = 'row'")
	v.exec(t, "DELETE FROM dblock_reader")
	v.exec(t, "UPDATE dblock_permit SET handle = NULL, member_id = NULL WHERE slot = 1")
	for _, lock := range locks {
		suite.IsLost(t, lock, dblock.Stolen)
	}
}

// aRefusedGuardEndsTheLock: a guard that is fenced off tells the holder at once, long before the next heartbeat.
func aRefusedGuardEndsTheLock(t *testing.T, v *env) {
	const ttl = time.Hour
	a, b := v.process(t, LeaseOptions{TTL: ttl}), v.process(t, LeaseOptions{})
	for _, opts := range [][]dblock.Option{nil, {dblock.WithShared()}, {dblock.WithPermits(1, 2)}} {
		lock := suite.Acquire(t, a, "k", opts...)
		if err := v.Check(t.Context(), a, lock); err != nil {
			t.Fatal(err)
		}
		if err := b.ForceRelease(t.Context(), "k", token(t, lock)); err != nil {
			t.Fatal(err)
		}
		if err := v.Check(t.Context(), a, lock); !errors.Is(err, dblock.ErrFenced) {
			t.Errorf("guarded: %v", err)
		}
		suite.IsLost(t, lock, dblock.Stolen)
		if err := v.Check(t.Context(), a, lock); !errors.Is(err, dblock.ErrLost) {
			t.Errorf("guarded after the loss: %v", err)
		}
	}
}

// aCrowdIsVerified holds many keys, of which one is taken away: it alone is lost.
func aCrowdIsVerified(t *testing.T, v *env) {
	n := 2500
	if os.Getenv("DBLOCK_SOAK") == "" {
		n = 1500
	}
	l := v.process(t, LeaseOptions{TTL: stolenTTL})
	keys := make([]string, 100)
	var stolen *dblock.Lock
	for i := range n / len(keys) {
		for k := range keys {
			keys[k] = "crowd " + string(rune('a'+i)) + " " + string(rune('A'+k))
		}
		lock, err := l.AcquireAll(suite.Soon(t), keys)
		if err != nil {
			t.Fatal(err)
		}
		if i == 7 {
			stolen = lock
			continue
		}
		defer func() {
			if lock.Context().Err() != nil {
				t.Errorf("%q was lost", lock.Key())
			}
			_ = lock.Release(t.Context())
		}()
	}
	v.exec(t, "UPDATE dblock_lease SET handle = NULL, member_id = NULL WHERE lease_key = '"+stolen.Keys()[57]+"'")
	suite.IsLost(t, stolen, dblock.Stolen)
}
