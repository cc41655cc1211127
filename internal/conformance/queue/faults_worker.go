package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// The environment of worker processes that write a log.
const (
	workerLog = "DBLOCK_TEST_WORKER_LOG"
	workerN   = "DBLOCK_TEST_WORKER_N"
	workerHow = "DBLOCK_TEST_WORKER_HOW" // one of:

	howFaulty  = "faulty"   // handlers fail at random, and connections are cut
	howZombie  = "zombie"   // handlers complete their jobs, whatever happens
	howNoFence = "no fence" // the same, and the statement that ends jobs does not check whose they are
)

const (
	faultyTTL = 2 * time.Second
	jobTakes  = 5 * time.Millisecond // at least, and up to four times as long
)

// workAndWrite works until its test stops it, or kills it.
func (e Queue) workAndWrite(dsn string) error {
	how := os.Getenv(workerHow)
	n, err := strconv.Atoi(os.Getenv(workerN))
	if err != nil {
		return err
	}
	log, err := newEventLog(os.Getenv(workerLog), n)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dialer := new(faultconn.Dialer)
	q, err := e.openReachable(ctx, dsn, how, dialer, queue.Options{
		TTL: faultyTTL, Timeout: 3 * time.Second, Label: fmt.Sprint("worker ", n), History: 1,
		Observer: queue.Observer{Lost: func(_ string, jobs int) { log.note(event{What: endsRefused, N: jobs}) }},
	})
	if err != nil {
		return err
	}
	if err := queue.Handle(q, "note", log.handler(how)); err != nil {
		return err
	}
	go func() {
		suite.WaitToGoOn()
		stop()
		time.Sleep(time.Minute)
		os.Exit(1) // it could not end
	}()
	o := queue.WorkerOptions{
		Concurrency: 4, Batch: 20, Poll: 50 * time.Millisecond, Promote: 50 * time.Millisecond,
		Rescue: 200 * time.Millisecond, Grace: 2 * time.Second,
		Backoff: func(int, error) time.Duration { return rand.N(100 * time.Millisecond) },
	}
	if how == howFaulty {
		defer log.cutNowAndThen(dialer)()
	}
	if how != howFaulty || n%2 == 0 {
		o.Ahead = -1 // it has begun all jobs that it has: only ends of handlers are refused
	}
	err = q.Work(ctx, o)
	closed := closeIn(q, 30*time.Second)
	if errors.Is(closed, dblock.ErrUnavailable) || errors.Is(closed, dblock.ErrOutcomeUnknown) {
		closed = nil // its connection was cut, too
	}
	return errors.Join(err, closed)
}

// openReachable waits for the server as well.
func (e Queue) openReachable(ctx context.Context, dsn, how string, dialer *faultconn.Dialer, o queue.Options) (
	*queue.Queue, error) {
	open := e.OpenOn
	if how == howNoFence {
		open = e.OpenUnfenced
	}
	for {
		q, _, err := open(ctx, dsn, dialer, o)
		if err == nil || !errors.Is(err, dblock.ErrUnavailable) {
			return q, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// handler works for a while, and returns one thing or another.
func (l *eventLog) handler(how string) func(context.Context, queue.Job[int]) error {
	return func(ctx context.Context, job queue.Job[int]) error {
		e := event{What: runBegan, Job: job.ID.String(), Attempt: job.Attempt}
		l.note(e)
		time.Sleep(jobTakes + rand.N(3*jobTakes))
		if how != howFaulty && job.Attempt > 1 {
			time.Sleep(2 * faultyTTL) // until after the zombie goes on
		}
		if errors.Is(context.Cause(ctx), dblock.ErrLost) {
			l.note(event{What: claimLost})
		}
		said, err := saysDone, error(nil)
		if how == howFaulty {
			said, err = sayAtRandom()
		}
		e.What, e.Said = runEnded, said
		l.note(e)
		return err
	}
}

func sayAtRandom() (said string, err error) {
	switch n := rand.N(1000); {
	case n < 60:
		return saysFailed, errBadDay
	case n < 80:
		return saysFailed, context.Canceled
	case n < 110:
		return saysSnoozed, queue.Snooze(rand.N(100 * time.Millisecond))
	case n < 115:
		return saysDiscard, queue.Discard(errBadDay)
	case n < 120:
		return saysCancel, queue.Cancel(errBadDay)
	}
	return saysDone, nil
}

// cutNowAndThen loses replies until end is called. By then each cut that struck is written down.
func (l *eventLog) cutNowAndThen(dialer *faultconn.Dialer) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var cuts sync.WaitGroup
	cuts.Go(func() {
		for suite.SleepFor(ctx, rand.N(10*time.Second)) {
			from := suite.Uptime()
			dialer.Arm(1+rand.N(60), faultconn.CutAfter, nil)
			suite.SleepFor(ctx, 200*time.Millisecond)
			if dialer.Disarm() {
				l.note(event{What: cut, From: from})
			}
		}
	})
	return func() {
		cancel()
		cuts.Wait()
	}
}

// fleet is the worker processes of a test.
type fleet struct {
	d      *env
	how    string
	folder string
	all    []*process
	log    *eventLog // of the test
}

type process struct {
	*suite.Child
	n            int
	ended        bool
	thawed       chan struct{} // of a frozen process, else nil. Closed: it goes on, and until is known
	since, until time.Duration
}

const processes = 8

func (d *env) fleet(t *testing.T, how string) *fleet {
	t.Helper()
	c := &fleet{d: d, how: how, folder: t.TempDir()}
	c.log = suite.Must(newEventLog(c.path(everybody), everybody))(t)
	t.Cleanup(func() {
		for _, p := range c.all {
			p.Kill() // nothing, if it has ended
		}
		_ = c.log.file.Close()
	})
	for range processes {
		c.start(t)
	}
	return c
}

func (c *fleet) path(n int) string { return filepath.Join(c.folder, strconv.Itoa(n)) }

// start starts one more process.
func (c *fleet) start(t *testing.T) {
	t.Helper()
	n := len(c.all)
	cmd := c.d.workerCommand(context.Background(), workerMode+"="+modeLog, workerLog+"="+c.path(n),
		workerN+"="+strconv.Itoa(n), workerHow+"="+c.how)
	c.all = append(c.all, &process{Child: suite.StartChild(t, cmd), n: n})
}

// any is a process that works, at random, or nil.
func (c *fleet) any() *process {
	for _, i := range rand.Perm(len(c.all)) {
		if p := c.all[i]; p.thawed == nil && !p.ended {
			return p
		}
	}
	return nil
}

func (c *fleet) kill(t *testing.T) {
	p := c.any()
	if p == nil {
		return
	}
	from := suite.Uptime()
	p.Kill()
	p.ended = true
	c.suffered(p.n, killed, from, suite.Uptime())
	c.start(t)
}

// freeze stops a process that has jobs, and thaws it once it was taken for dead and others had time
// to begin its jobs.
func (c *fleet) freeze(thaws *sync.WaitGroup) {
	for range 30 {
		p := c.any()
		if p == nil {
			return
		}
		since := suite.Uptime()
		_ = suite.Suspend(p.Process)
		if c.claims(p) <= 0 {
			_ = suite.Resume(p.Process)
			continue
		}
		p.since, p.thawed = since, make(chan struct{})
		thaws.Go(func() {
			defer close(p.thawed)
			late := time.Now().Add(5 * faultyTTL)
			for time.Sleep(faultyTTL); c.claims(p) != 0 && time.Now().Before(late); time.Sleep(20 * time.Millisecond) {
			}
			time.Sleep(faultyTTL / 4)
			_ = suite.Resume(p.Process)
			p.until = suite.Uptime()
		})
		return
	}
}

// claims returns how many claims a living process has, or -1 if the server is down.
func (c *fleet) claims(p *process) (n int) {
	query := `SELECT count(*) FROM dblock_queue_claim c
		JOIN dblock_member m ON m.member_id = c.member_id WHERE m.label = 'worker %d'`
	if err := c.d.db.QueryRowContext(context.Background(), fmt.Sprintf(query, p.n)).Scan(&n); err != nil {
		return -1
	}
	return n
}

// noteThawed writes down which processes were frozen and go on.
func (c *fleet) noteThawed() {
	for _, p := range c.all {
		select {
		case <-p.thawed:
			c.suffered(p.n, frozen, p.since, p.until)
			p.thawed = nil
		default:
		}
	}
}

// suffered writes down what happened to a worker.
func (c *fleet) suffered(worker int, what string, from, to time.Duration) {
	(&eventLog{c.log.file, worker}).note(event{What: what, From: from, At: to})
}

// stop ends all processes, as a service is ended, and returns what all have written.
func (c *fleet) stop(t *testing.T) (events []event) {
	t.Helper()
	for _, p := range c.all {
		if !p.ended {
			_ = p.In.Close()
		}
	}
	for _, p := range c.all {
		if !p.ended {
			assert.NoError(t, p.Wait(), "worker %d", p.n)
			p.ended = true
		}
	}
	for n := everybody; n < len(c.all); n++ {
		some, err := readEvents(c.path(n))
		if !errors.Is(err, os.ErrNotExist) { // it was killed before it began
			assert.NoError(t, err)
		}
		events = append(events, some...)
	}
	return events
}
