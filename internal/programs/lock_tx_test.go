package programs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
)

// inTx locks rows, or advisory locks, until a transaction ends.
func (c *lockClient) inTx(s lockStep, h hold) {
	ctx, cancel := context.WithTimeout(context.Background(), max(s.Wait, 20*time.Millisecond)+2*time.Second)
	defer cancel()
	var inside section
	var ids []int
	err := c.server.run(ctx, func(ctx context.Context, t tx) (err error) {
		if ids, err = c.lockInTx(ctx, t, s, &h); err != nil || len(h.Names) == 0 {
			return err
		}
		h.Granted = now()
		inside = c.enter(&h)
		defer func() {
			inside.leave()
			h.Left = now()
		}()
		time.Sleep(s.Work)
		for _, id := range ids {
			if h.Mode == dblock.ModeExclusive {
				err = errors.Join(err, bump(ctx, t, id))
			}
		}
		return err
	})
	if h.Granted == 0 {
		return
	}
	h.Released = now()
	if err != nil {
		h.Lost = err.Error()
	}
	for _, id := range ids {
		if h.Mode == dblock.ModeExclusive {
			say("count", count{id, err != nil})
		}
	}
	say("hold", h)
}

// lockInTx locks what a step says, and notes in h what was locked.
func (c *lockClient) lockInTx(ctx context.Context, t tx, s lockStep, h *hold) (ids []int, err error) {
	if s.Lock == advised {
		wait := dblock.NoWait()
		if !s.Try && s.Wait > 0 {
			wait = dblock.WaitAtMost(s.Wait)
		}
		return nil, t.advise(ctx, wait, s.Mode == dblock.ModeShared, h.Names)
	}
	first := rowOf(c.Run, 0)
	if s.Lock == claim {
		ids, err = t.claim(ctx, len(s.Keys), fmt.Sprintf("SELECT id FROM tally WHERE id >= %d AND id < %d ORDER BY id", first, first+lockKeys))
	} else {
		var o dblock.RowLock
		if s.Wait > 0 {
			o.Wait = dblock.WaitAtMost(s.Wait)
		}
		if s.Try {
			o.Wait = dblock.NoWait()
			if len(s.Keys) > 1 {
				o.Wait = dblock.SkipLocked()
			}
		}
		if s.Mode == dblock.ModeShared {
			o.Strength = dblock.StrengthShare
		}
		for _, k := range s.Keys {
			ids = append(ids, rowOf(c.Run, k))
		}
		ids, err = t.lockRows(ctx, ids, o)
	}
	h.Names = nil
	for _, id := range ids {
		h.Names = append(h.Names, nameOf(c.Run, id-first))
	}
	return ids, err
}
