package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// Workers that write down what they do are told where, and more, by their environment.
const (
	workerLog  = "DBLOCK_TEST_WORKER_LOG"
	workerN    = "DBLOCK_TEST_WORKER_N"
	workerHow  = "DBLOCK_TEST_WORKER_HOW" // one of those below
	howFaulty  = "faulty"                 // handlers fail at random, and connections are cut
	howZombie  = "zombie"                 // handlers do their jobs, come what may
	howNoFence = "no fence"               // the same, and the statement that ends jobs asks nobody whose they are
)

const (
	faultyTTL = 2 * time.Second
	eachTime  = 5 * time.Millisecond // at least, and up to four times as much: how long a job takes
)

// workAndWrite works until its test has it stop, or kills it.
func (e Queue) workAndWrite(dsn string) error {
	path := os.Getenv(workerLog)
	n, err := strconv.Atoi(os.Getenv(workerN))
	if err != nil {
		return err
	}
	log, err := newWorkFile(path, n)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	how := os.Getenv(workerHow)
	dialer := new(faultconn.Dialer)
	q, err := e.openReachable(ctx, dsn, how, dialer, queue.Options{
		TTL: faultyTTL, Timeout: 3 * time.Second, Label: fmt.Sprint("worker ", n), History: 1,
		Observer: queue.Observer{Lost: func(_ string, jobs int) { log.note(workEvent{What: itWasLost, N: jobs}) }},
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
		time.Sleep(20 * time.Second)
		os.Exit(1) // it could not end
	}()
	if how == howFaulty {
		defer log.cutNowAndThen(dialer)()
	}
	ahead := 0
	if how != howFaulty || n%2 == 0 {
		ahead = -1 // all that it has it has begun, so that what is refused are ends of handlers alone
	}
	err = q.Work(ctx, queue.WorkerOptions{
		Concurrency: 4, Batch: 20, Ahead: ahead, Poll: 50 * time.Millisecond, Promote: 50 * time.Millisecond, Rescue: 200 * time.Millisecond, Grace: 2 * time.Second,
		Backoff: func(int, error) time.Duration { return rand.N(100 * time.Millisecond) },
	})
	leave, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	left := q.Close(leave)
	if errors.Is(left, dblock.ErrUnavailable) || errors.Is(left, dblock.ErrOutcomeUnknown) { // its connection was cut, too
		left = nil
	}
	return errors.Join(err, left)
}

// openReachable waits for the server as well.
func (e Queue) openReachable(ctx context.Context, dsn, how string, dialer *faultconn.Dialer, o queue.Options) (*queue.Queue, error) {
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

// handler works for a while, and says one thing or another.
func (f *workFile) handler(how string) func(context.Context, queue.Job[int]) error {
	return func(ctx context.Context, job queue.Job[int]) error {
		e := workEvent{What: itBegan, Job: job.ID.String(), Attempt: job.Attempt}
		f.note(e)
		time.Sleep(eachTime + rand.N(3*eachTime))
		if how != howFaulty && job.Attempt > 1 {
			time.Sleep(2 * faultyTTL) // till after the zombie goes on
		}
		if errors.Is(context.Cause(ctx), dblock.ErrLost) {
			f.note(workEvent{What: itWasGone})
		}
		said, err := saysDone, error(nil)
		if how == howFaulty {
			said, err = sayAtRandom()
		}
		e.What, e.Said = itEnded, said
		f.note(e)
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

// cutNowAndThen has replies get lost until it is ended, by when each cut that struck is written down.
func (f *workFile) cutNowAndThen(dialer *faultconn.Dialer) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var cuts sync.WaitGroup
	cuts.Go(func() {
		for suite.SleepFor(ctx, rand.N(10*time.Second)) {
			from := suite.Uptime()
			dialer.Arm(1+rand.N(60), faultconn.CutAfter, nil)
			suite.SleepFor(ctx, 200*time.Millisecond)
			if dialer.Disarm() {
				f.note(workEvent{What: itWasCut, From: from})
			}
		}
	})
	return func() {
		cancel()
		cuts.Wait()
	}
}

// crew is the worker processes of a test.
type crew struct {
	d      *env
	how    string
	folder string
	all    []*workman
	log    *workFile // of whoever strikes them
}

// workman is one of them.
type workman struct {
	*suite.Child
	n      int
	killed bool // or has ended

	frozen       bool
	since, until time.Duration
	over         chan struct{} // closed: until is known
}

func (d *env) crew(t *testing.T, how string, size int) *crew {
	t.Helper()
	c := &crew{d: d, how: how, folder: t.TempDir()}
	log, err := newWorkFile(filepath.Join(c.folder, "strikes"), everybody)
	if err != nil {
		t.Fatal(err)
	}
	c.log = log
	t.Cleanup(func() {
		for _, h := range c.all {
			h.Kill() // nothing, where it has ended
		}
		_ = log.file.Close()
	})
	for range size {
		c.hire(t)
	}
	return c
}

func (c *crew) path(n int) string { return filepath.Join(c.folder, fmt.Sprint("worker ", n)) }

// hire starts one more process.
func (c *crew) hire(t *testing.T) {
	t.Helper()
	h := &workman{n: len(c.all)}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerDSN+"="+c.d.dsn, workerKind+"="+string(c.d.e.Kind), workerMode+"="+modeLog, workerLog+"="+c.path(h.n),
		workerN+"="+strconv.Itoa(h.n), workerHow+"="+c.how)
	h.Child = suite.StartChild(t, cmd)
	c.all = append(c.all, h)
}

// any is one that works, at random; nil: none does.
func (c *crew) any() *workman {
	for _, i := range rand.Perm(len(c.all)) {
		if h := c.all[i]; !h.frozen && !h.killed {
			return h
		}
	}
	return nil
}

// befell writes down what befell a worker, from when till when.
func (c *crew) befell(worker int, what string, from, to time.Duration) {
	(&workFile{c.log.file, worker}).note(workEvent{What: what, From: from, At: to})
}

// stop ends all that were not killed, as a service is ended, and reads what all have written.
func (c *crew) stop(t *testing.T) (events []workEvent) {
	t.Helper()
	for _, h := range c.all {
		if !h.killed {
			_ = h.In.Close()
		}
	}
	for _, h := range c.all {
		if h.killed {
			continue
		}
		if err := h.Wait(); err != nil {
			t.Errorf("worker %d ended with %v", h.n, err)
		}
		h.killed = true
	}
	for _, path := range append([]string{filepath.Join(c.folder, "strikes")}, c.paths()...) {
		some, err := readWork(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it was killed before it began
			t.Error(err)
		}
		events = append(events, some...)
	}
	return events
}

func (c *crew) paths() (all []string) {
	for n := range c.all {
		all = append(all, c.path(n))
	}
	return all
}
