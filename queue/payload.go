package queue

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	// inlineBytes is how many bytes of payloads a claim brings at most. Larger payloads are read once the claim is committed.
	inlineBytes = 2 << 20

	// A piece is what is read at once: as many bytes as take about pieceTime to read, or a quarter of Options.Timeout if that is shorter.
	firstPiece = 256 << 10
	mostPiece  = 4 << 20
	pieceTime  = 100 * time.Millisecond

	// readTries is how often a piece is tried before its jobs are handed back. One job that can't be read in time gets twice the time each
	// time, up to mostPatience.
	readTries    = 8
	mostPatience = 30 * time.Second
)

// inline is up to how many bytes a payload comes with its claim.
func (w *worker) inline() int { return inlineBytes / w.o.Batch }

// reads reads payloads that did not come with the claims of their jobs, until ctx ends.
func (w *worker) reads(ctx context.Context) {
	for {
		select {
		case <-w.line.come:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			w.mu.Lock()
			most := w.piece
			w.mu.Unlock()
			tasks := w.line.piece(most)
			if len(tasks) == 0 {
				break
			}
			w.read(ctx, tasks)
			w.signal() // there may be room for another claim
		}
	}
}

// read reads the payloads of one piece. What takes too long is read in smaller pieces.
func (w *worker) read(ctx context.Context, tasks []*task) {
	patience := w.q.o.Timeout
	for n := 0; ; n++ {
		began := time.Now()
		err := w.readOnce(ctx, tasks, patience)
		if err == nil {
			w.pieceTook(tasks, time.Since(began))
			break
		}
		if w.stopping.Load() || ctx.Err() != nil || n == readTries || tasks[0].of.of.ctx.Err() != nil {
			w.handBack(tasks...)
			return
		}
		w.q.trouble("reading the payloads of jobs", err)
		w.pieceTook(tasks, w.q.o.Timeout)
		if half := len(tasks) / 2; half > 0 {
			w.line.unpiece(tasks[half:])
			tasks = tasks[:half]
		} else {
			patience = min(2*patience, w.q.mostPatience())
		}
		_ = pace.Sleep(ctx, pace.Jitter(10*time.Millisecond<<n))
	}
	missing := func(t *task) bool { return t.Unread }
	if gone := slices.DeleteFunc(slices.Clone(tasks), func(t *task) bool { return !t.Unread }); len(gone) > 0 {
		w.handBack(gone...) // to be refused, and counted
		tasks = slices.DeleteFunc(tasks, missing)
	}
	if !w.line.filled(tasks) {
		w.handBack(tasks...)
		return
	}
	if w.paused.Load() { // since they were claimed
		w.giveBack(w.line.takeBack())
	}
}

// readOnce fills in the payloads of jobs that are there.
func (w *worker) readOnce(ctx context.Context, tasks []*task, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	jobs := make([]driver.ID, len(tasks))
	for i, t := range tasks {
		jobs[i] = t.ID
	}
	payloads, err := w.q.driver.Payloads(ctx, jobs)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if payload, found := payloads[t.ID]; found {
			t.Payload, t.Unread = payload, false
		}
	}
	return nil
}

// pieceTook has the next piece be larger or smaller. One that was small says nothing of larger ones.
func (w *worker) pieceTook(tasks []*task, took time.Duration) {
	wanted := min(pieceTime, w.q.o.Timeout/4)
	bytes := 0
	for _, t := range tasks {
		bytes += t.Bytes
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case took < wanted/2 && bytes >= w.piece/2:
		w.piece = min(2*w.piece, mostPiece)
	case took > 2*wanted:
		w.piece = max(min(w.piece, bytes)/2, 1)
	}
}
