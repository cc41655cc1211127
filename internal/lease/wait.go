package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
)

// bells are rung when a key was given back that this process waits for. They are a hint: the poll is
// the truth.
type bells struct {
	mu  sync.Mutex
	key map[string]*bell
}

// bell is rung for one key; one call at a time waits for one.
type bell struct {
	rung  chan struct{} // holds one
	id    member.ID     // under which the database knows that we wait
	stale time.Time     // when it is to be told anew
}

func (b *bells) init() { b.key = make(map[string]*bell) }

func (b *bells) ring(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bell := b.key[key]; bell != nil {
		bell.ring()
	}
}

// ringAll is for when it is not known what was missed.
func (b *bells) ringAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, bell := range b.key {
		bell.ring()
	}
}

func (b *bell) ring() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// startWaiting tells the database that this process waits for a key.
func (l *Locker) startWaiting(ctx context.Context, key string) (*bell, error) {
	life, err := l.member.Life(ctx)
	if err != nil {
		return nil, err
	}
	b := &bell{rung: make(chan struct{}, 1), id: life.ID, stale: l.o.Clock.Now().Add(waitsFor * l.o.Poll / 2)}
	l.bells.mu.Lock()
	l.bells.key[key] = b
	l.bells.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	if err := l.engine.Wait(ctx, key, b.id, waitsFor*l.o.Poll); err != nil {
		l.stopWaiting(key, b)
		return nil, err
	}
	return b, nil
}

// waitsFor is for how many polls the database takes it that a process waits; it is told anew when half of
// them are over.
const waitsFor = 120

func (l *Locker) stopWaiting(key string, b *bell) {
	if b == nil {
		return
	}
	l.bells.mu.Lock()
	delete(l.bells.key, key)
	l.bells.mu.Unlock()
	l.background(func() { // who waited has the lock, and is not to wait for this; or the row expires
		ctx, cancel := context.WithTimeout(context.Background(), l.bound())
		defer cancel()
		_ = l.engine.StopWaiting(ctx, key, b.id)
	})
}

// pause waits until it is worth asking again: the bell rings, the holder's time is up, or the poll
// is due, with jitter so that processes don't ask in step.
func (l *Locker) pause(ctx context.Context, b *bell, refused *dblock.HeldError) error {
	d := l.o.Poll/2 + rand.N(l.o.Poll)
	if refused.Remaining > 0 {
		d = min(d, refused.Remaining+time.Millisecond)
	}
	var rung chan struct{}
	if b != nil {
		rung = b.rung
	}
	due := make(chan struct{})
	timer := l.o.Clock.AfterFunc(d, func() { close(due) })
	defer timer.Stop()
	select {
	case <-rung:
	case <-due:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.ending.Done():
		return context.Cause(l.ending)
	}
	return nil
}

// listen rings the bells for what other processes give back, for as long as the Locker lives.
func (l *Locker) listen() {
	for n := 0; l.ending.Err() == nil; n++ {
		err := l.engine.Listen(l.ending, func() { n = 0; l.bells.ringAll() }, l.bells.ring)
		if err != nil && isUnsupported(err) {
			return
		}
		if l.sleep(l.ending, rand.N(time.Second<<min(n, 5))) != nil {
			return
		}
	}
}

func isUnsupported(err error) bool { return errors.Is(err, dblock.ErrUnsupported) }
