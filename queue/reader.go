package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	// inlineBytes is how many bytes of payloads a claim brings at most. Larger payloads are read
	// once the claim is committed.
	inlineBytes = 2 << 20

	// A piece is what is read at once: as many bytes as take about pieceTime to read, or a quarter
	// of Options.Timeout if that is shorter.
	firstPiece = 256 << 10
	maxPiece   = 4 << 20
	pieceTime  = 100 * time.Millisecond

	// readTries is how often a piece is tried before its jobs are handed back. One job that can't
	// be read in time gets twice the time each time, up to maxPatience.
	readTries   = 8
	maxPatience = 30 * time.Second
)

// payloadReader reads payloads that did not come with the claims of their jobs.
type payloadReader struct {
	w *worker

	mu    sync.Mutex
	piece int // bytes of payloads that are read at once
}

// readable is of how many jobs the payloads can be read soon, if one has so many bytes; at most
// most.
func (p *payloadReader) readable(bytes, most int) int {
	if bytes <= inlineBytes/p.w.o.Batch {
		return most
	}
	unread, piece := p.w.buffer.unreadBytes(), p.pieceBytes()
	if unread == 0 {
		return max(2*piece/bytes, 1)
	}
	return (2*piece - unread) / bytes
}

func (p *payloadReader) pieceBytes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.piece
}

// run reads until ctx ends.
func (p *payloadReader) run(ctx context.Context) {
	for {
		select {
		case <-p.w.buffer.come:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			jobs := p.w.buffer.piece(p.pieceBytes())
			if len(jobs) == 0 {
				break
			}
			p.read(ctx, jobs)
			p.w.sync.signal() // another claim may be possible
		}
	}
}

// read reads the payloads of one piece. What takes too long is read in smaller pieces.
func (p *payloadReader) read(ctx context.Context, jobs []*claimedJob) {
	patience := p.w.q.o.Timeout
	for n := 0; ; n++ {
		began := time.Now()
		err := p.readOnce(ctx, jobs, patience)
		if err == nil {
			p.pieceTook(jobs, time.Since(began))
			break
		}
		if p.w.state.is(stopping) || ctx.Err() != nil || n == readTries || jobs[0].claim.owner.ctx.Err() != nil {
			p.w.sync.releaseUnbegun(jobs...)
			return
		}
		p.w.q.trouble("reading the payloads of jobs", err)
		p.pieceTook(jobs, p.w.q.o.Timeout)
		if half := len(jobs) / 2; half > 0 {
			p.w.buffer.unpiece(jobs[half:])
			jobs = jobs[:half]
		} else {
			patience = min(2*patience, p.w.q.db.maxPatience())
		}
		_ = pace.Sleep(ctx, pace.Jitter(10*time.Millisecond<<n))
	}
	missing := func(j *claimedJob) bool { return j.Unread }
	if gone := slices.DeleteFunc(slices.Clone(jobs), func(j *claimedJob) bool { return !j.Unread }); len(gone) > 0 {
		p.w.sync.releaseUnbegun(gone...) // to be refused, and counted
		jobs = slices.DeleteFunc(jobs, missing)
	}
	if !p.w.buffer.filled(jobs) {
		p.w.sync.releaseUnbegun(jobs...)
		return
	}
	if p.w.state.is(resting) { // since they were claimed
		p.w.sync.release(p.w.buffer.drain())
	}
}

// readOnce fills in the payloads of jobs that are there.
func (p *payloadReader) readOnce(ctx context.Context, jobs []*claimedJob, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ids := make([]driver.ID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	payloads, err := p.w.q.driver.Payloads(ctx, ids)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if payload, found := payloads[j.ID]; found {
			j.Payload, j.Unread = payload, false
		}
	}
	return nil
}

// pieceTook has the next piece be larger or smaller. One that was small says nothing of larger
// ones.
func (p *payloadReader) pieceTook(jobs []*claimedJob, took time.Duration) {
	wanted := min(pieceTime, p.w.q.o.Timeout/4)
	bytes := 0
	for _, j := range jobs {
		bytes += j.Bytes
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case took < wanted/2 && bytes >= p.piece/2:
		p.piece = min(2*p.piece, maxPiece)
	case took > 2*wanted:
		p.piece = max(min(p.piece, bytes)/2, 1)
	}
}
