package dblock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

// forgetful is a Locker of a server that forgets.
type forgetful struct{ *dblocktest.LeaseLocker }

func (forgetful) Caps() dblock.Caps { return dblock.Caps{NotDurable: "fsync = off"} }

func TestQuorumRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	a, b, c := dblocktest.New(t), dblocktest.New(t), dblocktest.New(t)
	for name, x := range map[string]struct {
		nodes []dblock.Locker
		o     dblock.QuorumOptions
		want  error
		says  string
	}{
		"none":                {nil, dblock.QuorumOptions{}, dblock.ErrInvalid, "there are 0"},
		"one":                 {[]dblock.Locker{a}, dblock.QuorumOptions{}, dblock.ErrInvalid, "there are 1"},
		"two":                 {[]dblock.Locker{a, b}, dblock.QuorumOptions{}, dblock.ErrInvalid, "there are 2"},
		"four":                {[]dblock.Locker{a, b, c, dblocktest.New(t)}, dblock.QuorumOptions{}, dblock.ErrInvalid, "there are 4"},
		"one twice":           {[]dblock.Locker{a, b, a}, dblock.QuorumOptions{}, dblock.ErrInvalid, "nodes[0] again"},
		"nil":                 {[]dblock.Locker{a, nil, c}, dblock.QuorumOptions{}, dblock.ErrInvalid, "nodes[1]"},
		"a nil pointer":       {[]dblock.Locker{a, b, (*dblocktest.LeaseLocker)(nil)}, dblock.QuorumOptions{}, dblock.ErrInvalid, "nodes[2]"},
		"a short timeout":     {[]dblock.Locker{a, b, c}, dblock.QuorumOptions{NodeTimeout: 1}, dblock.ErrInvalid, "NodeTimeout"},
		"a long timeout":      {[]dblock.Locker{a, b, c}, dblock.QuorumOptions{NodeTimeout: time.Hour}, dblock.ErrInvalid, "NodeTimeout"},
		"a negative drift":    {[]dblock.Locker{a, b, c}, dblock.QuorumOptions{Drift: -1}, dblock.ErrInvalid, "Drift"},
		"a drift without end": {[]dblock.Locker{a, b, c}, dblock.QuorumOptions{Drift: time.Hour}, dblock.ErrInvalid, "Drift"},
		"a drift too long":    {[]dblock.Locker{a, b, c}, dblock.QuorumOptions{Drift: 9 * time.Second}, dblock.ErrInvalid, "Drift"}, // TTL less Margin
		"one that forgets":    {[]dblock.Locker{a, b, forgetful{c}}, dblock.QuorumOptions{}, dblock.ErrUnsupported, "nodes[2]"},
		"and how":             {[]dblock.Locker{forgetful{a}, b, c}, dblock.QuorumOptions{}, dblock.ErrUnsupported, "fsync = off"},
	} {
		q, err := dblock.NewQuorum(x.nodes, x.o)
		if q != nil || !errors.Is(err, x.want) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v, %v", name, q, err)
		}
		if x.want == dblock.ErrInvalid && !errors.As(err, new(*dblock.InvalidError)) {
			t.Errorf("%s: no InvalidError but %v", name, err)
		}
	}
	q, err := dblock.NewQuorum([]dblock.Locker{a, b, c}, dblock.QuorumOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dblock.NewQuorum([]dblock.Locker{a, b, c}, dblock.QuorumOptions{Drift: 9*time.Second - 1}); err != nil {
		t.Errorf("the longest drift: %v", err)
	}
	if _, err := q.Acquire(t.Context(), "k", dblock.WithPermits(1, 2)); !errors.Is(err, dblock.ErrUnsupported) {
		t.Errorf("permits: %v", err)
	}
	if _, err := q.Acquire(t.Context(), "k", dblock.WithShared()); !errors.Is(err, dblock.ErrUnsupported) {
		t.Errorf("shared: %v", err)
	}
	if _, err := q.TryAcquire(t.Context(), ""); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
	if _, err := q.Acquire(t.Context(), "k", dblock.WithMaxHold(1)); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("a hold of a nanosecond: %v", err)
	}
	for hold, want := range map[time.Duration]error{2 * time.Millisecond: dblock.ErrInvalid, time.Second: nil} {
		lock, err := q.TryAcquire(t.Context(), "k", dblock.WithMaxHold(hold))
		if !errors.Is(err, want) {
			t.Errorf("a hold of %v beside a drift of 2 ms: %v; want %v", hold, err, want)
		}
		if lock != nil {
			_ = lock.Release(t.Context())
		}
	}
	if _, err := dblock.NewElector(q, "k", dblock.ElectorOptions{}); !errors.Is(err, dblock.ErrUnsupported) {
		t.Errorf("an Elector of a Quorum: %v", err)
	}
}
