package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// queueCmd is `dblock queue`.
type queueCmd struct {
	Stats   queueStatsCmd   `cmd:"" help:"Count the jobs of each queue by state, and show how long the oldest has waited."`
	List    queueListCmd    `cmd:"" help:"List jobs of a queue."`
	Show    queueShowCmd    `cmd:"" help:"Show a job and its payload."`
	Retry   queueRetryCmd   `cmd:"" help:"Run dead jobs again, with all their attempts."`
	Cancel  queueCancelCmd  `cmd:"" help:"Drop jobs, and end the contexts of those that run."`
	Discard queueDiscardCmd `cmd:"" help:"Give up jobs that wait, and keep them with the dead."`
	Purge   queuePurgeCmd   `cmd:"" help:"Drop the dead jobs of a queue."`
	Pause   queuePauseCmd   `cmd:"" help:"Pause a queue."`
	Resume  queueResumeCmd  `cmd:"" help:"Resume a paused queue."`
}

// queueFlags are those that all of them have.
type queueFlags struct {
	databaseFlags
	JSON bool `name:"json" help:"Print JSON; times in milliseconds, or as RFC 3339."`
}

// queueFlag chooses one of the queues.
type queueFlag struct {
	Queue string `default:"default" help:"The queue."`
}

// Validate refuses an empty name, which a script may give by mistake. Kong calls it.
func (f *queueFlag) Validate() error { return checkQueue(f.Queue) }

// queueArg names a queue.
type queueArg struct {
	Queue string `arg:"" help:"The queue."`
}

// Validate refuses an empty name, which a script may give by mistake. Kong calls it.
func (a *queueArg) Validate() error { return checkQueue(a.Queue) }

func checkQueue(name string) error {
	if name == "" {
		return errors.New("name the queue: the name is empty")
	}
	return nil
}

// jobArgs are jobs.
type jobArgs struct {
	IDs []string `arg:"" name:"id" help:"The jobs, as list shows them."`
}

// withQueue runs do on the queue of the database.
func (f databaseFlags) withQueue(ctx context.Context, do func(*queue.Queue) error) error {
	return f.withHistory(ctx, 0, do)
}

// withHistory is withQueue. If days is not 0, the history of jobs that end is kept: the services
// decide for how long.
func (f databaseFlags) withHistory(ctx context.Context, days int, do func(*queue.Queue) error) error {
	o := queue.Options{Schema: f.Schema, Label: "dblock queue", History: days}
	q, closePool, err := connect(ctx, f,
		func(pool *pgxpool.Pool) (*queue.Queue, error) { return pgqueue.New(ctx, pool, o) },
		func(db *sql.DB) (*queue.Queue, error) { return mysqlqueue.New(ctx, db, o) })
	if err != nil {
		return err
	}
	return errors.Join(do(q), closeSoon(ctx, q.Close), closePool())
}

// queueStatsCmd is `dblock queue stats`.
type queueStatsCmd struct{ queueFlags }

// shownStats are statistics for a program.
type shownStats struct {
	Queues           []shownQueue `json:"queues"`
	DeadTuples       int64        `json:"dead_tuples"`        // Postgres
	OldestSnapshotMs int64        `json:"oldest_snapshot_ms"` // Postgres
	HistoryLength    int64        `json:"history_length"`     // MySQL and MariaDB
	CountsStopAt     int          `json:"counts_stop_at"`
}

type shownQueue struct {
	Queue     string `json:"queue"`
	Ready     int    `json:"ready"`
	Scheduled int    `json:"scheduled"`
	Retrying  int    `json:"retrying"`
	Blocked   int    `json:"blocked"`
	Claimed   int    `json:"claimed"`
	Dead      int    `json:"dead"`
	OldestMs  int64  `json:"oldest_ms"`
	Paused    bool   `json:"paused"`
	PausedMs  int64  `json:"paused_ms,omitempty"`
}

// Run prints statistics.
func (c *queueStatsCmd) Run(ctx context.Context, s streams) error {
	return c.withQueue(ctx, func(q *queue.Queue) error {
		stats, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(s.out, shownStatsOf(stats))
		}
		return printStats(s.out, stats)
	})
}

func shownStatsOf(stats queue.Stats) shownStats {
	shown := shownStats{
		Queues: []shownQueue{}, DeadTuples: stats.DeadTuples, OldestSnapshotMs: stats.OldestSnapshot.Milliseconds(), HistoryLength: stats.HistoryLength,
		CountsStopAt: queue.MaxCounted,
	}
	for _, q := range stats.Queues {
		shown.Queues = append(shown.Queues, shownQueue{
			q.Queue, q.Ready, q.Scheduled, q.Retrying, q.Blocked, q.Claimed, q.Dead, q.Oldest.Milliseconds(), q.Paused >= 0, max(q.Paused, 0).Milliseconds(),
		})
	}
	return shown
}

func printStats(out io.Writer, stats queue.Stats) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "QUEUE\tREADY\tSCHEDULED\tRETRYING\tBLOCKED\tCLAIMED\tDEAD\tOLDEST\tPAUSED")
	for _, q := range stats.Queues {
		paused := "-"
		if q.Paused >= 0 {
			paused = "for " + q.Paused.Round(time.Second).String()
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%v\t%s\n", printable(q.Queue), counted(q.Ready), counted(q.Scheduled), counted(q.Retrying),
			counted(q.Blocked), counted(q.Claimed), counted(q.Dead), q.Oldest.Round(time.Millisecond), paused)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var err error
	if stats.DeadTuples >= 0 {
		_, err = fmt.Fprintf(out, "dead tuples %d, oldest snapshot %v\n", stats.DeadTuples, max(stats.OldestSnapshot, 0).Round(time.Millisecond))
	}
	if stats.HistoryLength >= 0 {
		_, err = fmt.Fprintf(out, "history list length %d\n", stats.HistoryLength)
	}
	return err
}

// counted is a count that may have stopped.
func counted(n int) string {
	if n >= queue.MaxCounted {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}

// queueListCmd is `dblock queue list`.
type queueListCmd struct {
	queueFlags
	queueFlag
	State string `default:"ready" help:"State: ready, scheduled, retrying, blocked, claimed or dead. With history also completed, cancelled or discarded."`
	Limit int    `default:"100" help:"How many at most: 1 to 1,000."`
}

// shownJob is one job for a program.
type shownJob struct {
	ID          string    `json:"id"`
	Queue       string    `json:"queue"`
	Kind        string    `json:"kind"`
	State       string    `json:"state"`
	Priority    int16     `json:"priority"`
	Attempts    int       `json:"attempts"`
	MaxAttempts int       `json:"max_attempts,omitempty"`
	EnqueuedAt  time.Time `json:"enqueued_at"`
	At          time.Time `json:"at,omitzero"` // when it became ready, will be run, was claimed, died or ended
	LastError   string    `json:"last_error,omitempty"`
	Worker      string    `json:"worker,omitempty"`
	UniqueKey   string    `json:"unique_key,omitempty"`
	GroupKey    string    `json:"group_key,omitempty"`
	Payload     []byte    `json:"payload,omitempty"` // in base64
}

func shownJobOf(r queue.Record) shownJob {
	return shownJob{
		r.ID.String(), r.Queue, r.Kind, r.State.String(), r.Priority, r.Attempts, r.MaxAttempts, r.EnqueuedAt.UTC(), r.At.UTC(), r.LastError, r.Worker,
		r.UniqueKey, r.GroupKey, r.Payload,
	}
}

// Validate refuses a limit that would mean the default.
func (c *queueListCmd) Validate() error {
	if c.Limit < 1 {
		return fmt.Errorf("--limit: %d is not within 1 to 1,000", c.Limit)
	}
	return c.queueFlag.Validate()
}

// Run lists jobs.
func (c *queueListCmd) Run(ctx context.Context, s streams) error {
	state, err := queue.ParseJobState(c.State)
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	return c.withQueue(ctx, func(q *queue.Queue) error {
		jobs, err := q.List(ctx, queue.Filter{Queue: c.Queue, State: state, Limit: c.Limit})
		if err != nil {
			return err
		}
		if c.JSON {
			shown := make([]shownJob, len(jobs))
			for i, r := range jobs {
				shown[i] = shownJobOf(r)
			}
			return printJSON(s.out, shown)
		}
		t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "ID\tKIND\tPRIORITY\tATTEMPTS\tENQUEUED\tAT\tWORKER\tLAST ERROR")
		for _, r := range jobs {
			_, _ = fmt.Fprintf(t, "%v\t%s\t%d\t%d of %d\t%s\t%s\t%s\t%.80s\n", r.ID, printable(r.Kind), r.Priority, r.Attempts, r.MaxAttempts,
				clockTime(r.EnqueuedAt), clockTime(r.At), printable(r.Worker), printable(firstLine(r.LastError)))
		}
		return t.Flush()
	})
}

func clockTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// queueShowCmd is `dblock queue show`.
type queueShowCmd struct {
	queueFlags
	ID string `arg:"" help:"The job."`
}

// Run shows a job.
func (c *queueShowCmd) Run(ctx context.Context, s streams) error {
	id, err := queue.ParseID(c.ID)
	if err != nil {
		return err
	}
	return c.withQueue(ctx, func(q *queue.Queue) error {
		r, err := q.Show(ctx, id)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(s.out, shownJobOf(r))
		}
		t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		for _, line := range [][2]string{
			{"id", r.ID.String()}, {"queue", r.Queue}, {"kind", r.Kind}, {"state", r.State.String()}, {"priority", strconv.Itoa(int(r.Priority))},
			{"attempts", fmt.Sprintf("%d of %d", r.Attempts, r.MaxAttempts)}, {"enqueued", clockTime(r.EnqueuedAt)}, {"at", clockTime(r.At)},
			{"worker", r.Worker}, {"unique key", r.UniqueKey}, {"group key", r.GroupKey}, {"last error", r.LastError}, {"payload", string(r.Payload)},
		} {
			if line[1] != "" {
				_, _ = fmt.Fprintf(t, "%s\t%s\n", line[0], printable(line[1]))
			}
		}
		return t.Flush()
	})
}
