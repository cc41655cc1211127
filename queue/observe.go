package queue

import (
	"log/slog"
	"time"

	"github.com/dblock-go/dblock/internal/callback"
)

// Observer reports what becomes of jobs, for metrics and traces. Each function may be nil, and must
// not block: what it reports goes on when it has returned. A panic, or a call of runtime.Goexit, is
// written to Options.Log, and ends nothing.
type Observer struct {
	// Claimed: so many jobs were claimed, in a round trip that took so long. 0: none were ready.
	Claimed func(queue string, jobs int, took time.Duration)

	// Completed: a handler has returned nil after so long. Whether that is recorded, Recorded and
	// Lost report. That of HandleTx is.
	Completed func(job Info, took time.Duration)

	// Failed: an attempt failed, and the job is tried again after so long.
	Failed func(job Info, err error, again time.Duration)

	// Discarded: a job is dead: err is what its last attempt, or the
	// one that was discarded, said. If the job waited, the process that calls Queue.Discard reports
	// it.
	Discarded func(job Info, err error)

	// Cancelled: a handler has dropped its job; or Queue.Cancel has, and err is ErrCancelled. If
	// the job waited, the process that calls Cancel reports it. If it was claimed, the process that
	// had it does, or the one that rescues it.
	Cancelled func(job Info, err error)

	// Snoozed: a handler has put its job off; or no handler of this process knows the kind of the
	// job (ErrUnknownKind).
	Snoozed func(job Info, again time.Duration)

	// Recorded: the ends of so many jobs (Completed, Cancelled) are committed, in a round trip, or
	// by a commit of HandleTx, that took so long. One that got no answer and was sent again is
	// counted with the second answer, if its outcome can be learned: see Lost.
	Recorded func(queue string, jobs int, took time.Duration)

	// Lost: the ends of so many jobs were refused, as their claims were taken away: other processes
	// do these jobs, or have ended them. It is what becomes of a process that stood still for
	// longer than its TTL. An end that got no answer, or a commit of HandleTx, counts as lost, too,
	// if its outcome can't be learned. It may have taken place. Of a commit, Trouble gets
	// dblock.ErrOutcomeUnknown. An end that Close did not wait for counts as lost; of it Trouble
	// gets ErrNotRecorded.
	Lost func(queue string, jobs int)

	// Rescued: processes are gone. So many of their jobs run again: after the backoff, or at once
	// if their attempt is known not to have begun. The last attempts of dead had begun.
	Rescued func(again, dead int)

	// Elected: a worker of this process does a maintenance task from now on, or, with false, no
	// more. After three failures of one in a row a worker gives its tasks up. task is "promote"
	// (jobs whose time has come), "rescue" (those of processes that are gone), "history" (old days
	// are deleted) or "stats".
	Elected func(task string, is bool)

	// Stats reports how the queues do, every WorkerOptions.Stats, on one process at a time of those
	// that set it and have the same other tasks.
	Stats func(Stats)

	// HeartbeatLate: a heartbeat was not confirmed at the first attempt; remaining is for how long
	// the process may still trust its claims. 0: no heartbeat was answered in time.
	HeartbeatLate func(remaining time.Duration, err error)

	// Trouble: something failed behind the callers' backs, and will be tried again.
	Trouble func(doing string, err error)
}

// cancelled calls the Observer for a job that was dropped.
func (q *Queue) cancelled(job Info, why error) {
	if f := q.o.Observer.Cancelled; f != nil {
		f(job, why)
	}
}

// guarded returns an Observer whose functions call those of o and recover from their panics.
func (o Observer) guarded(log *slog.Logger) Observer {
	o.Claimed = callback.Func3(log, o.Claimed)
	o.Completed = callback.Func2(log, o.Completed)
	o.Failed = callback.Func3(log, o.Failed)
	o.Discarded = callback.Func2(log, o.Discarded)
	o.Cancelled = callback.Func2(log, o.Cancelled)
	o.Snoozed = callback.Func2(log, o.Snoozed)
	o.Recorded = callback.Func3(log, o.Recorded)
	o.Lost = callback.Func2(log, o.Lost)
	o.Rescued = callback.Func2(log, o.Rescued)
	o.Elected = callback.Func2(log, o.Elected)
	o.Stats = callback.Func1(log, o.Stats)
	o.HeartbeatLate = callback.Func2(log, o.HeartbeatLate)
	o.Trouble = callback.Func2(log, o.Trouble)
	return o
}
