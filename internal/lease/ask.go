package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/internal/schema"
)

// tries is how often a call asks again at once for what nobody seems to hold: it was locked for a moment,
// or somebody made its row at the same time.
const tries = 6

// ask asks the database for a key: the lock, or who has it.
func (l *Locker) ask(ctx context.Context, p *place, r dblock.Request) (*dblock.Lock, *dblock.HeldError, error) {
	var gone member.ID
	for n := 1; ; n++ {
		life, err := l.member.Life(ctx)
		if err != nil {
			if !l.again(ctx, err, n) {
				return nil, nil, l.unjoined(ctx, err, r.Key)
			}
			continue
		}
		a := l.asked(r)
		if gone != (member.ID{}) {
			a.Gone, a.Contended = gone, false
		}
		sent := l.o.Clock.Now()
		answer, err := l.acquire.Do(ctx, ask{a, life})
		if err != nil {
			if l.mayStand(err) {
				l.doubt(life, Back{Key: a.Key, Handle: a.Handle})
			}
			if !l.again(ctx, err, n) {
				return nil, nil, l.unanswered(ctx, err, r.Key)
			}
			continue
		}
		if answer.Token != 0 {
			lock, err := l.grant(ctx, p, life, r, a, answer.Token, sent)
			return lock, nil, err
		}
		if answer.Holder.Dead && n < tries {
			answer.Held = false
			if answer.Holder.Member != gone && l.evictions.evict(ctx, l, answer.Holder.Member) {
				gone = answer.Holder.Member
				continue
			}
		}
		if answer.Held || n >= tries {
			refused := heldBy(r.Key, answer)
			l.see(r.Key, refused)
			return nil, refused, nil
		}
		if answer.MemberGone {
			life.Suspect()
		}
		if err := l.sleep(ctx, time.Millisecond<<n); err != nil {
			return nil, nil, l.unanswered(ctx, err, r.Key)
		}
	}
}

// unjoined is the error of a call whose process could not join: whatever became of that, nothing was asked for.
func (l *Locker) unjoined(ctx context.Context, err error, key string) error {
	switch {
	case errors.Is(err, dblock.ErrClosed):
		return err
	case ctx.Err() != nil:
		return ended(l.lastSeen(key), context.Cause(ctx))
	case l.engine.Fault(err) == fault.Lost:
		return fmt.Errorf("%w: lock %q: nothing was asked for: %w", dblock.ErrUnavailable, key, err)
	default:
		return l.explain(err, key)
	}
}

// again tells, after a pause, whether a statement that failed is to be sent again: nothing of it was
// written. A pool may hold several connections that died, with a server that was restarted say.
func (l *Locker) again(ctx context.Context, err error, n int) bool {
	if is := l.engine.Fault(err); is != fault.Retry && is != fault.Unreachable || errors.Is(err, dblock.ErrClosed) {
		return false
	}
	return n < tries && l.sleep(ctx, time.Millisecond<<n) == nil
}

// asked makes the Ask of a request, under a handle of its own.
func (l *Locker) asked(r dblock.Request) Ask {
	a := Ask{Key: r.Key, Handle: member.NewID(), Label: l.o.Label, Data: r.Data, Detached: r.Detached}
	if r.Label != nil {
		a.Label = *r.Label
	}
	if r.MaxHold != nil {
		a.Hold = *r.MaxHold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a.Contended = l.lines[r.Key].seen != nil
	return a
}

func heldBy(key string, a Answer) *dblock.HeldError {
	h := &dblock.HeldError{Key: key, Remaining: a.Holder.Remaining}
	if a.Held {
		h.Holder = dblock.Holder{Label: a.Holder.Label, Token: a.Holder.Token}
		if a.Holder.Member != (member.ID{}) {
			h.Holder.Member = a.Holder.Member.String()
		}
	}
	return h
}

// mayStand tells whether a lease may have been granted, or may yet be, though the answer is an error.
func (l *Locker) mayStand(err error) bool {
	switch {
	case errors.Is(err, dblock.ErrOutcomeUnknown):
		return true
	case errors.Is(err, merge.ErrNotSent), errors.Is(err, dblock.ErrOverloaded), errors.Is(err, dblock.ErrClosed):
		return false // the queue refused it
	}
	return l.engine.Fault(err) == fault.Lost
}

// unanswered puts an error into the words of package dblock.
func (l *Locker) unanswered(ctx context.Context, err error, key string) error {
	switch {
	case errors.Is(err, dblock.ErrOutcomeUnknown), errors.Is(err, dblock.ErrClosed), errors.Is(err, dblock.ErrOverloaded):
		return err
	case ctx.Err() != nil && !l.mayStand(err):
		return ended(l.lastSeen(key), context.Cause(ctx))
	default:
		return l.explain(err, key)
	}
}

func (l *Locker) explain(err error, key string) error {
	switch l.engine.Fault(err) {
	case fault.Lost:
		return fmt.Errorf("%w: lock %q: no answer came; should it have been granted, it is given back within two heartbeats: %w",
			dblock.ErrOutcomeUnknown, key, err)
	case fault.Busy, fault.Retry:
		return fmt.Errorf("%w: lock %q: nothing was written: %w", dblock.ErrBusy, key, err)
	case fault.Unreachable:
		return fmt.Errorf("%w: lock %q: nothing was written: %w", dblock.ErrUnavailable, key, err)
	case fault.NoSchema:
		return fmt.Errorf("lock %q: %w: %w", key, &dblock.SchemaError{Want: schema.Version}, err)
	default:
		return fmt.Errorf("lock %q: %w", key, err)
	}
}

// runAcquire is one statement of the queue, or one for each life where the process has just joined
// again.
func (l *Locker) runAcquire(ctx context.Context, batch []ask, _ bool) ([]merge.Answer[Answer], error) {
	answers := make([]merge.Answer[Answer], len(batch))
	lives := make(map[*member.Life][]int)
	for i, a := range batch {
		lives[a.life] = append(lives[a.life], i)
	}
	ctx, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	for life, at := range lives {
		asks := make([]Ask, len(at))
		for n, i := range at {
			asks[n] = batch[i].Ask
		}
		got, err := l.engine.Acquire(ctx, By{life.ID, life.Beat()}, asks)
		if err != nil && len(lives) == 1 {
			return nil, err
		}
		for n, i := range at {
			if err != nil {
				answers[i].Err = err
			} else {
				answers[i].Value = got[n]
			}
		}
	}
	return answers, nil
}

// bound is how long a statement may take, with what it waits for.
func (l *Locker) bound() time.Duration { return statementBound(l.member) }

// statementBound is half of the TTL: what is under way for longer is granted no more (see By). But nobody waits for
// hours for a connection that went silent.
func statementBound(m *member.Member) time.Duration { return min(m.TTL()/2, 10*time.Second) }
