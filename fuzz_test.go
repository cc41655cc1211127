package dblock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

// FuzzRequest: each combination of key and options is a request or ErrInvalid, and what is accepted
// can be stored.
func FuzzRequest(f *testing.F) {
	for _, key := range []string{"nightly", "", "\x00", "\xff", "\x01", "Grüße 🔒", "a\x00b", string(make([]byte, 600))} {
		f.Add(key, "other", "label", []byte("data"), 1, 1, int64(time.Second))
	}
	f.Add("nightly", "nightly", "\xff", []byte(nil), -1, 1<<30, int64(-1))
	f.Fuzz(func(t *testing.T, key, other, label string, data []byte, n, limit int, hold int64) {
		opts := []dblock.Option{
			dblock.WithLabel(label), dblock.WithData(data), dblock.WithShared(), dblock.WithPermits(n, limit),
			dblock.WithMaxHold(time.Duration(hold)), dblock.WithoutRenewal(time.Duration(hold)), dblock.WithReentrant(),
		}
		for pick := range 1 << len(opts) {
			var some []dblock.Option
			for i, o := range opts {
				if pick>>i&1 == 1 {
					some = append(some, o)
				}
			}
			one, err := root.NewRequest(key, some)
			checkRequest(t, one, err)
			set, err := root.NewSetRequest([]string{key, other}, some)
			checkRequest(t, set, err)
			if err == nil && len(set.Set()) != 2 {
				t.Errorf("a set of %q", set.Set())
			}
		}
	})
}

func checkRequest(t *testing.T, r root.Request, err error) {
	t.Helper()
	if err != nil {
		if !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%q: %v", r.Key, err)
		}
		return
	}
	for _, key := range r.Set() {
		if err := root.CheckText("key", key, 1, dblock.MaxLockKeyBytes); err != nil {
			t.Errorf("accepted: %v", err)
		}
	}
}

// TestOptionsThatExcludeEachOther are refused in either order. One that is given twice is not.
func TestOptionsThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]dblock.Option{
		{dblock.WithShared(), dblock.WithPermits(1, 2)},
		{dblock.WithMaxHold(time.Hour), dblock.WithoutRenewal(time.Hour)},
	} {
		for _, opts := range [][]dblock.Option{{pair[0], pair[1]}, {pair[1], pair[0]}} {
			if _, err := root.NewRequest("k", opts); !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
		}
		for _, o := range pair {
			if _, err := root.NewRequest("k", []dblock.Option{o, o}); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestRequestOfAnUnknownMode: a mode that no option sets is refused, too.
func TestRequestOfAnUnknownMode(t *testing.T) {
	t.Parallel()
	unknown := func(r *root.Request) { r.Mode = 3 }
	if _, err := root.NewRequest("k", []dblock.Option{unknown}); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}
