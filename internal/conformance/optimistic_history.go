package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock/optimistic"
)

// overtaken is the kind of a step that was told of a conflict: what it had read was no longer there.
const overtaken what = "overtaken"

// casRegister is an account's balance, of which each is written once.
type casRegister struct{ value int64 }

func (r casRegister) next(s step) []state {
	switch {
	case s.what == read && s.was == r.value, s.what == overtaken && s.was != r.value:
		return []state{r}
	case s.what == updated && s.was == r.value:
		return []state{casRegister{s.now}}
	}
	return nil
}

// swap notes an update of account 1 to a balance that nobody else writes. between runs when it has read, and has not written.
func (l *ledger) swap(h *history, client int, to int64, blind bool, between func()) {
	var was, loaded int64
	from := h.now()
	_, err := l.pool.Update(l.Context(), Change{ID: 1, Blind: blind, Mutate: func(_ context.Context, a *Account) error {
		was, loaded = a.Balance, h.now()
		a.Balance = to
		between()
		return nil
	}}, optimistic.Attempts(1))
	h.note(client, from, loaded, step{what: read, key: "1", was: was})
	switch {
	case err == nil:
		h.note(client, loaded, h.now(), step{what: updated, key: "1", was: was, now: to})
	case errors.Is(err, optimistic.ErrConflict):
		h.note(client, loaded, h.now(), step{what: overtaken, key: "1", was: was})
	default:
		l.Error(err)
	}
}

// isACASRegister: what each reads and writes, and is refused, has an order in which it makes sense.
func isACASRegister(l *ledger) {
	h := &history{began: time.Now()}
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
	if !h.isRight(l.T, first) {
		l.Errorf("no order makes sense of\n%s", h.wrong(first))
	}
	if h.count(overtaken) == 0 || h.count(updated) == 0 {
		l.Errorf("%v: nobody met anybody", h)
	}
	_, at, _ := h.first(func(s step) bool { return s.what == overtaken })
	lie := slices.Clone(h.steps)
	forged := lie[at].Input.(step)
	forged.what, forged.now = updated, -1
	lie[at].Input = forged
	write, _, _ := h.first(func(s step) bool { return s.what == updated })
	h.forgeriesAreNoticed(l.T, first, map[string][]porcupine.Operation{
		"an update that was refused": lie, "an update for the second time": h.and(write),
	})
	l.T.Log(h)
}

// controlIsNoCASRegister: with the version left out of the WHERE, two who have read the same both write.
func controlIsNoCASRegister(l *ledger) {
	h, m := &history{began: time.Now()}, newMeeting()
	two(func(n int) error { l.swap(h, n, int64(100_000+n), true, func() { m.of(n) }); return nil })
	if h.isRight(l.T, casRegister{100}) {
		l.Error("the test would pass without the version")
	}
}
