package main

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// TestUnlockReadsOneKey: unlock receives nothing about the 1,000 other keys that are held.
func TestUnlockReadsOneKey(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		_, l := holdKey(t, database, "of one")
		long := strings.Repeat("k", 200)
		var g errgroup.Group
		for i := range 1000 {
			g.Go(func() error {
				_, err := l.Acquire(t.Context(), fmt.Sprint(long, i))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		for _, o := range []dblock.Option{dblock.WithShared(), dblock.WithPermits(1, 2)} {
			if _, err := l.Acquire(t.Context(), "k", o); err != nil {
				t.Fatal(err)
			}
		}
		held, err := l.Held(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := newProxy(t, strings.TrimPrefix(database, "--database="))
		for _, h := range held {
			if strings.HasPrefix(h.Key, long) {
				continue
			}
			before := p.answers.Load()
			invoke(t, "", "unlock", h.Key, fmt.Sprint("--token=", h.Fence.Token), "--database="+p.dsn).want(t, 0, "released")
			if n := p.answers.Load() - before; n > 64<<10 {
				t.Errorf("%s, %v: the server sent %d bytes", h.Key, h.Mode, n)
			}
		}
	})
}
