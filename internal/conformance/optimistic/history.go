package optimistic

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/optimistic"
)

// overtaken is the kind of a step that was told of a conflict: what it had read was no longer there.
const overtaken suite.What = "overtaken"

// casRegister is an account's balance, of which each is written once.
type casRegister struct{ value int64 }

func (r casRegister) Next(s suite.Step) []suite.State {
	switch {
	case s.What == suite.Read && s.Was == r.value, s.What == overtaken && s.Was != r.value:
		return []suite.State{r}
	case s.What == suite.Updated && s.Was == r.value:
		return []suite.State{casRegister{s.Now}}
	}
	return nil
}

// swap notes an update of account 1 to a balance that nobody else writes. between runs when it has read, and has not written.
func (l *ledger) swap(h *suite.History, client int, to int64, blind bool, between func()) {
	var was, loaded int64
	from := h.Now()
	_, err := l.pool.Update(l.Context(), Change{ID: 1, Blind: blind, Mutate: func(_ context.Context, a *Account) error {
		was, loaded = a.Balance, h.Now()
		a.Balance = to
		between()
		return nil
	}}, optimistic.Attempts(1))
	h.Note(client, from, loaded, suite.Step{What: suite.Read, Key: "1", Was: was})
	switch {
	case err == nil:
		h.Note(client, loaded, h.Now(), suite.Step{What: suite.Updated, Key: "1", Was: was, Now: to})
	case errors.Is(err, optimistic.ErrConflict):
		h.Note(client, loaded, h.Now(), suite.Step{What: overtaken, Key: "1", Was: was})
	default:
		l.Error(err)
	}
}

// isACASRegister: what each reads and writes, and is refused, has an order in which it makes sense.
func isACASRegister(l *ledger) {
	h := &suite.History{Began: time.Now()}
	var crowd sync.WaitGroup
	for client := range 8 {
		crowd.Go(func() {
			for n := range 25 {
				l.swap(h, client, int64(1000*(client+1)+n), false, func() {})
			}
		})
	}
	crowd.Wait()
	m := newMeeting() // at least two of them meet
	two(func(n int) error { l.swap(h, n, int64(100_000+n), false, func() { m.of(n) }); return nil })
	first := casRegister{100}
	if !h.IsRight(l.T, first) {
		l.Errorf("no order makes sense of\n%s", h.Wrong(first))
	}
	if h.Count(overtaken) == 0 || h.Count(suite.Updated) == 0 {
		l.Errorf("%v: nobody met anybody", h)
	}
	_, at, _ := h.First(func(s suite.Step) bool { return s.What == overtaken })
	lie := slices.Clone(h.Steps)
	forged := lie[at].Input.(suite.Step)
	forged.What, forged.Now = suite.Updated, -1
	lie[at].Input = forged
	write, _, _ := h.First(func(s suite.Step) bool { return s.What == suite.Updated })
	h.ForgeriesAreNoticed(l.T, first, map[string][]porcupine.Operation{
		"an update that was refused": lie, "an update for the second time": h.And(write),
	})
	l.T.Log(h)
}

// controlIsNoCASRegister: with the version left out of the WHERE, two who have read the same both write.
func controlIsNoCASRegister(l *ledger) {
	h, m := &suite.History{Began: time.Now()}, newMeeting()
	two(func(n int) error { l.swap(h, n, int64(100_000+n), true, func() { m.of(n) }); return nil })
	if h.IsRight(l.T, casRegister{100}) {
		l.Error("the test would pass without the version")
	}
}
