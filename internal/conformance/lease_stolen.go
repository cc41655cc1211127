package conformance

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

// stolenTTL is a TTL of whose third a busy machine has time to read what it holds.
const stolenTTL = 8 * time.Second

// aStolenLockIsLost releases what a live process holds, as an operator does, in every mode: its context ends within the
// TTL, while another process holds the key, and the release says so.
func aStolenLockIsLost(t *testing.T, v place) {
	a, b := v.process(t, LeaseOptions{TTL: stolenTTL}), v.process(t, LeaseOptions{})
	locks := map[string]*dblock.Lock{
		"alone":    acquire(t, a, "alone"),
		"reader":   acquire(t, a, "reader", dblock.WithShared()),
		"permits":  acquire(t, a, "permits", dblock.WithPermits(2, 2)),
		"detached": acquire(t, a, "detached", dblock.WithoutRenewal(time.Hour)),
	}
	set, err := a.AcquireAll(soon(t), []string{"s1", "s2", "s3"})
	if err != nil {
		t.Fatal(err)
	}
	locks["s2"] = set
	kept := acquire(t, a, "kept")
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
		next := acquire(t, b, key, whole...)
		began := time.Now()
		isLost(t, lock, dblock.Stolen)
		t.Logf("%s: noticed after %v", key, time.Since(began))
		if err := lock.ExpireIn(t.Context(), time.Hour); !errors.Is(err, dblock.ErrLost) {
			t.Errorf("%s: ExpireIn: %v", key, err)
		}
		release(t, next)
	}
	release(t, acquire(t, b, "s1")) // the rest of the set was given back
	if kept.Context().Err() != nil {
		t.Error("another lock of the process was lost")
	}
	release(t, kept)
}

// aForgottenGrantIsLost takes grants out of the tables, as a failover to a replica does that has not received them. The
// member's row is there: heartbeats go on.
func aForgottenGrantIsLost(t *testing.T, v *vault) {
	l := v.process(t, LeaseOptions{TTL: stolenTTL})
	locks := []*dblock.Lock{
		acquire(t, l, "alone"), acquire(t, l, "reader", dblock.WithShared()), acquire(t, l, "permits", dblock.WithPermits(2, 3)),
		acquire(t, l, "row", dblock.WithLabel("forgotten")),
	}
	v.exec(t, "UPDATE dblock_lease SET handle = NULL, member_id = NULL WHERE lease_key = 'alone'")
	v.exec(t, "DELETE FROM dblock_lease WHERE lease_key = 'row'")
	v.exec(t, "DELETE FROM dblock_reader")
	v.exec(t, "UPDATE dblock_permit SET handle = NULL, member_id = NULL WHERE slot = 1")
	for _, lock := range locks {
		isLost(t, lock, dblock.Stolen)
	}
}

// aRefusedGuardEndsTheLock: a guard that is fenced off tells the holder at once, long before the next heartbeat.
func aRefusedGuardEndsTheLock(t *testing.T, v *vault) {
	const ttl = time.Hour
	a, b := v.process(t, LeaseOptions{TTL: ttl}), v.process(t, LeaseOptions{})
	for _, opts := range [][]dblock.Option{nil, {dblock.WithShared()}, {dblock.WithPermits(1, 2)}} {
		lock := acquire(t, a, "k", opts...)
		if err := v.Check(t.Context(), a, lock); err != nil {
			t.Fatal(err)
		}
		if err := b.ForceRelease(t.Context(), "k", token(t, lock)); err != nil {
			t.Fatal(err)
		}
		if err := v.Check(t.Context(), a, lock); !errors.Is(err, dblock.ErrFenced) {
			t.Errorf("guarded: %v", err)
		}
		isLost(t, lock, dblock.Stolen)
		if err := v.Check(t.Context(), a, lock); !errors.Is(err, dblock.ErrLost) {
			t.Errorf("guarded after the loss: %v", err)
		}
	}
}

// aCrowdIsVerified holds many keys, of which one is taken away: it alone is lost.
func aCrowdIsVerified(t *testing.T, v *vault) {
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
		lock, err := l.AcquireAll(soon(t), keys)
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
	isLost(t, stolen, dblock.Stolen)
}
