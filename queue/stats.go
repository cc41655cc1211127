package queue

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// MaxCounted is where Stats stops counting the jobs of a queue in a state: that many are so many or
// more.
const MaxCounted = 10_000

// maxClaimed is how many claimed jobs of all queues Stats counts.
const maxClaimed = 100 * MaxCounted

// maxQueues is how many queues Stats returns.
const maxQueues = 1000

// Stats is how the queues do.
type Stats struct {
	Queues []QueueStats // by name

	// DeadTuples is what vacuum has yet to clear from the tables of the queue, and OldestSnapshot
	// for how long it has been held back: the oldest transaction of the database has a snapshot
	// since then. If both grow, look for that transaction: claims get slower by what can't be
	// cleared. Postgres only, of other roles' sessions only with the rights of pg_read_all_stats;
	// else 0, or negative.
	DeadTuples     int64
	OldestSnapshot time.Duration

	// HistoryLength is the same for MySQL and MariaDB: InnoDB's history list length. Negative: it
	// is not known; MySQL shows it to users with the privilege PROCESS.
	HistoryLength int64
}

// QueueStats is how one queue does. Each count stops at MaxCounted.
type QueueStats struct {
	Queue string

	Ready     int // can be worked on now
	Scheduled int // for later: delayed or snoozed
	Retrying  int // for later, after an attempt that failed
	Blocked   int // wait for others of their group
	Claimed   int // workers have them
	Dead      int // their attempts are used up, or they were discarded

	Oldest time.Duration // how long the ready job that has waited longest has done so; 0: there is none
	Paused time.Duration // since when the queue is paused; negative: it is not
}

// Stats counts the jobs of all queues, up to 1,000 of them. It reads no more than it counts, so
// that it may be called every few seconds, however large the tables are.
//
// Errors: those of the database.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	if err := q.begin(); err != nil {
		return Stats{}, err
	}
	defer q.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, q.o.Timeout)
	defer cancel()
	s, err := q.stats(ctx)
	if err != nil {
		return Stats{}, q.db.explain(sqlerr.Unwritten(err), "counting jobs")
	}
	return s, nil
}

func (q *Queue) stats(ctx context.Context) (Stats, error) {
	claimed, err := q.driver.Admin().Claimed(ctx, maxClaimed)
	if err != nil {
		return Stats{}, err
	}
	names := make(map[string]bool)
	for name := range claimed {
		names[name] = true
	}
	for name := ""; len(names) < maxQueues; names[name] = true {
		if name, err = q.driver.Admin().NextQueue(ctx, name); err != nil {
			return Stats{}, err
		}
		if name == "" {
			break
		}
	}
	var s Stats
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c, err := q.driver.Admin().Count(ctx, name, MaxCounted)
		if err != nil {
			return Stats{}, err
		}
		s.Queues = append(s.Queues, QueueStats{
			Queue: name, Ready: c.Ready, Scheduled: c.Scheduled, Retrying: c.Retrying, Blocked: c.Blocked, Claimed: min(claimed[name], MaxCounted),
			Dead: c.Dead, Oldest: max(c.Oldest, 0), Paused: c.Paused,
		})
	}
	h, err := q.driver.Admin().Health(ctx)
	s.DeadTuples, s.OldestSnapshot, s.HistoryLength = h.DeadTuples, h.OldestSnapshot, h.HistoryLength
	return s, err
}
