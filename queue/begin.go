package queue

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// The last attempt of a job is recorded as begun before its handler is called: as many attempts have ended then as the job may have. If the
// process is killed, the rescue can tell a job that has had its last attempt from one that was only claimed. Calls share a statement. Earlier
// attempts are not recorded: the rescue counts them, begun or not.

// beginning is a job whose last attempt is to begin.
type beginning struct {
	of    *tenure
	place engine.Place
}

func (q *Queue) newBegins() *merge.Queue[beginning, bool] {
	return merge.New(merge.Options[beginning, bool]{
		Run:   q.beginMerged,
		Key:   func(b beginning) string { return string(b.of.life.ID[:]) },
		Ends:  func(beginning) bool { return true }, // there are no more than handlers
		Apart: true,
	})
}

// beginMerged records the beginnings of one member.
func (q *Queue) beginMerged(ctx context.Context, all []beginning, _ bool) ([]merge.Answer[bool], error) {
	places, at := make([]engine.Place, len(all)), make(map[engine.ID]int, len(all))
	for i, b := range all {
		places[i], at[b.place.Job] = b.place, i
	}
	answers := make([]merge.Answer[bool], len(all))
	err := q.again(ctx, "recording that jobs begin", func(ctx context.Context) error {
		begun, err := q.engine.BeginJobs(ctx, all[0].of.life.ID, places)
		for _, job := range begun {
			answers[at[job]].Value = true
		}
		return err
	})
	return answers, err
}

// begin has the attempt at a job begin; false: it is not to be run, and that is noted.
func (w *worker) begin(t *task) bool {
	if t.Attempt+1 < t.MaxAttempts || t.cancelled.Load() {
		return true
	}
	t.begun = true
	ours, err := w.q.begins.Do(t.of.of.ctx, beginning{t.of.of, engine.Place{Claim: t.of.id, Job: t.ID}})
	switch {
	case w.stopping.Load() || t.of.of.ctx.Err() != nil:
		w.handBack(t)
	case err != nil:
		w.q.trouble("recording that a job begins", err)
		w.ended(end{task: t, what: deferred, attempt: t.Attempt, delay: jitter(beginAgain)})
	case !ours: // to be refused, and counted, with the others of its claim
		w.handBack(t)
	default:
		return true
	}
	return false
}

// beginAgain is about how long a job waits that could not begin: its last attempt was not recorded, or it got no transaction.
const beginAgain = time.Second
