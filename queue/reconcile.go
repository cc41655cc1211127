package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// claimSet is the claims that this process knows of: those that it asks for, and those whose end is not confirmed yet. A claim is in it
// before its statement is sent.
type claimSet struct {
	mu  sync.Mutex
	ids map[engine.ID]struct{}
}

func (s *claimSet) add(id engine.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[engine.ID]struct{})
	}
	s.ids[id] = struct{}{}
}

func (s *claimSet) drop(id engine.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}

func (s *claimSet) has(id engine.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.ids[id]
	return has
}

// reconciles gives back, with each heartbeat of a life, the claims that the database has for it and this process does not know of.
func (q *Queue) reconciles(life *member.Life) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reconciled == life {
		return
	}
	q.reconciled = life
	life.Doubt(func(ctx context.Context, _ int64) (settled bool) {
		q.reconcile(ctx, life.ID)
		return false
	})
}

// reconcile reads the recorded claims first, and then looks which of them are known: a claim is known until the database has confirmed
// that it is gone.
func (q *Queue) reconcile(ctx context.Context, m member.ID) {
	recorded, err := q.engine.ClaimsOf(ctx, m)
	if err != nil {
		q.trouble("reading the claims of this process", err)
		return
	}
	for _, claim := range recorded {
		if q.claims.has(claim) {
			continue
		}
		found, err := q.unclaim(ctx, m, claim)
		if err != nil {
			q.trouble("giving back a claim that got no answer", err)
			continue
		}
		if found {
			q.announce(engine.AnyQueue)
		}
	}
}

// unclaim gives back a claim, but for jobs that others want cancelled: these are dropped.
func (q *Queue) unclaim(ctx context.Context, m member.ID, claim engine.ID) (found bool, err error) {
	for range moves {
		var cancelled []engine.ID
		found, cancelled, err = q.engine.Unclaim(ctx, m, claim)
		if err != nil || len(cancelled) == 0 {
			return found, err
		}
		x := &engine.Exchange{Member: m}
		var jobs []engine.Record
		for _, job := range cancelled {
			q.drop(x, engine.Place{Claim: claim, Job: job, Keyed: true}) // it is not known whether it has keys
			if r, known, err := q.engine.Find(ctx, job); err == nil && known {
				jobs = append(jobs, r)
			}
		}
		got, err := q.engine.Exchange(ctx, x)
		if err != nil {
			return false, err
		}
		if got.Finished == len(cancelled) {
			for _, r := range jobs {
				q.cancelled(infoOf(r), ErrCancelled)
			}
		}
	}
	return found, fmt.Errorf("%w: jobs of a claim are cancelled all the time", dblock.ErrBusy)
}

// firstLook is after how long a claim that got no answer is looked for again, and then after twice as long each time, until the heartbeats
// come sooner. It may be on its way when it is looked for first.
const firstLook = 100 * time.Millisecond

// doubt has a claim that got no answer looked for at once and soon. Its statement does nothing if it begins after two more heartbeats.
func (q *Queue) doubt(life *member.Life, pause time.Duration) {
	life.Suspect()
	if pause < q.member.TTL()/3 && !life.Lost() {
		time.AfterFunc(pause, func() { q.doubt(life, 2*pause) })
	}
}
