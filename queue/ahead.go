package queue

import (
	"context"
	"time"
)

const (
	// strandAfter is for how long a job may wait in a process whose handlers are busy. Then it is handed back, for other processes.
	strandAfter = 250 * time.Millisecond

	// strandLook is how often a worker looks for such jobs.
	strandLook = strandAfter / 2
)

// ahead is how many jobs may be claimed before handlers are free for them; w.mu is held. They last for two claims. If a handler takes less
// time than a claim, they last for eight. If it takes as long as ten claims or longer, a free handler can wait for a claim, and there are
// none. So few jobs wait in this process that others could begin.
func (w *worker) ahead(now time.Time) int {
	claim := max(w.claimed, claimWait)
	if w.pace == 0 || w.pace >= 10*claim {
		return 0
	}
	last := 2 * claim
	if w.pace < claim {
		last = 8 * claim
	}
	busy := float64(w.o.Concurrency) * float64(last) / float64(w.pace)
	return min(w.rate.in(now, last, strandAfter+4*claim), int(min(busy, 1e6)), w.o.Ahead)
}

// unbegun is how many jobs wait for handlers, all of which are busy; w.mu is held.
func (w *worker) unbegun() int {
	return max(w.held-w.sent-len(w.ends)-len(w.apart)-w.o.Concurrency, 0)
}

// nextLook is after how long strand is to look; w.mu is held.
func (w *worker) nextLook(now time.Time) time.Duration {
	const long = time.Minute
	if w.unbegun() == 0 {
		return long
	}
	return max(w.looked.Add(strandLook).Sub(now), 0)
}

// strand hands back jobs that have waited for handlers, but for as many as handlers are about to begin. It does nothing if it has not looked
// for a while: if this process stood still, its handlers did, too.
func (w *worker) strand(now time.Time) {
	w.mu.Lock()
	if w.stopping.Load() || w.nextLook(now) > 0 {
		w.mu.Unlock()
		return
	}
	late := now.Sub(w.looked) > 2*strandLook
	taken := w.line.taken()
	keep := 2 * (taken - w.taken)
	w.looked, w.taken = now, taken
	w.mu.Unlock()
	if !late {
		w.giveBack(w.line.stranded(now.Add(-strandAfter), keep))
	}
}

// giveBack hands back jobs for others. This worker claims none ahead until it knows again how many jobs end.
func (w *worker) giveBack(tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	w.mu.Lock()
	w.rate = rate{}
	w.marks.forget() // they stand before them
	w.mu.Unlock()
	w.handBack(tasks...)
}

// pause takes over that the queue is paused: what has not begun is handed back.
func (w *worker) pause() {
	w.mu.Lock()
	w.paused.Store(true)
	w.pauses++
	w.mu.Unlock()
	w.giveBack(w.line.takeBack())
}

// resting tells whether jobs that an exchange has claimed are to be handed back, as the queue was paused meanwhile. An exchange that was sent
// after that has claimed jobs only if the queue was resumed; w.mu is held.
func (w *worker) resting(m *message, jobs int) bool {
	if jobs > 0 && m.pauses == w.pauses {
		w.paused.Store(false)
	}
	return w.paused.Load()
}

// looksForPause looks whether the queue is paused, if there are jobs to be handed back then.
func (w *worker) looksForPause(ctx context.Context) error {
	w.mu.Lock()
	idle := w.unbegun() == 0
	w.mu.Unlock()
	if idle {
		return nil
	}
	paused := false
	err := w.q.within(ctx, func(ctx context.Context) (err error) {
		paused, err = w.q.driver.Admin().IsPaused(ctx, w.o.Queue)
		return err
	})
	if paused {
		w.pause()
	}
	return err
}
