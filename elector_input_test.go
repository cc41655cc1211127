package dblock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

func TestElectorRunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *dblocktest.Server, ctx context.Context, stop func(error)) {
		c := newCandidate(t, s, dblock.ElectorOptions{})
		end := c.run(ctx, c.lead)
		<-c.terms
		if err := c.Run(ctx, c.lead); !errors.Is(err, dblock.ErrInvalid) || !strings.Contains(err.Error(), "runs already") {
			t.Errorf("a second Run returned %v", err)
		}
		if err := c.Run(ctx, nil); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("no fn: %v", err)
		}
		stop(errStop)
		<-end
		called := false
		err := c.Run(ctx, func(context.Context, dblock.Fence) error { called = true; return nil })
		if err != errStop || called {
			t.Errorf("under a context that has ended Run returned %v, and fn was called: %v", err, called)
		}
	})
}

// tokenless is a Locker without tokens.
type tokenless struct{ *dblocktest.LeaseLocker }

func (l tokenless) Caps() dblock.Caps { return dblock.Caps{MaxHold: true} }

// plain is a Locker without Holder.
type plain struct{ dblock.Locker }

func TestElectorRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	l := dblocktest.New(t)
	for name, x := range map[string]struct {
		locker dblock.Locker
		key    string
		o      dblock.ElectorOptions
		want   error
	}{
		"no Locker":       {nil, "k", dblock.ElectorOptions{}, dblock.ErrInvalid},
		"no tokens":       {tokenless{l}, "k", dblock.ElectorOptions{}, dblock.ErrUnsupported},
		"no Holder":       {plain{l}, "k", dblock.ElectorOptions{}, dblock.ErrUnsupported},
		"no key":          {l, "", dblock.ElectorOptions{}, dblock.ErrInvalid},
		"a key with NUL":  {l, "a\x00", dblock.ElectorOptions{}, dblock.ErrInvalid},
		"a long key":      {l, strings.Repeat("k", dblock.MaxLockKeyBytes+1), dblock.ElectorOptions{}, dblock.ErrInvalid},
		"a long label":    {l, "k", dblock.ElectorOptions{Label: strings.Repeat("k", dblock.MaxLabelBytes+1)}, dblock.ErrInvalid},
		"much data":       {l, "k", dblock.ElectorOptions{Data: make([]byte, dblock.MaxDataBytes+1)}, dblock.ErrInvalid},
		"a short poll":    {l, "k", dblock.ElectorOptions{Poll: time.Millisecond}, dblock.ErrInvalid},
		"a long poll":     {l, "k", dblock.ElectorOptions{Poll: time.Hour}, dblock.ErrInvalid},
		"a negative rest": {l, "k", dblock.ElectorOptions{YieldTime: -1}, dblock.ErrInvalid},
		"a long rest":     {l, "k", dblock.ElectorOptions{YieldTime: 2 * time.Hour}, dblock.ErrInvalid},
	} {
		e, err := dblock.NewElector(x.locker, x.key, x.o)
		if !errors.Is(err, x.want) || e != nil {
			t.Errorf("%s: %v, %v", name, e, err)
		}
		if x.want == dblock.ErrInvalid && !errors.As(err, new(*dblock.InvalidError)) {
			t.Errorf("%s: no InvalidError but %v", name, err)
		}
	}
}
