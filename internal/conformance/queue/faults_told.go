package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// teller notes what producers are told.
type teller struct {
	mu         sync.Mutex
	jobs       map[string]*toldJob
	duplicates int
}

// produce enqueues jobs of all sorts, over connections that are cut now and then.
func (p *teller) produce(ctx context.Context, t *testing.T, d *env, producer int) {
	dialer := new(faultconn.Dialer)
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, queue.Options{TTL: faultyTTL, Timeout: 3 * time.Second})
	if err != nil {
		t.Error(err)
		return
	}
	defer closePool()
	defer func() { _ = q.Close(context.WithoutCancel(ctx)) }()
	seqs := make(map[string]int)
	for n := 0; ctx.Err() == nil; n++ {
		time.Sleep(10*time.Millisecond + rand.N(20*time.Millisecond))
		if !d.wants(ctx) {
			continue
		}
		if n%10 == 0 {
			dialer.Arm(1+rand.N(20), faultconn.CutAfter, nil)
		}
		tasks, jobs := someTasks(fmt.Sprint(producer, "/"), n%4 == 0, seqs)
		made, err := q.EnqueueMany(context.WithoutCancel(ctx), tasks)
		p.take(t, jobs, made, err)
	}
}

// take notes what came of tasks.
func (p *teller) take(t *testing.T, jobs []*toldJob, made []queue.ID, err error) {
	var dup *queue.DuplicateError
	switch {
	case err == nil, errors.As(err, &dup), errors.Is(err, dblock.ErrOutcomeUnknown):
	case errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrBusy):
		return // nothing is enqueued
	default:
		t.Errorf("enqueue: %v", err)
		return
	}
	not := make(map[int]bool)
	if dup != nil {
		for _, x := range dup.Duplicates {
			not[x.Task] = true
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jobs == nil {
		p.jobs = make(map[string]*toldJob)
	}
	p.duplicates += len(not)
	for i, j := range jobs {
		if !not[i] {
			j.sure = !errors.Is(err, dblock.ErrOutcomeUnknown)
			p.jobs[made[i].String()] = j
		}
	}
}

// someTasks are ten, some of them for later and with few attempts, and with keys where these are asked for; and what is known of them.
func someTasks(groups string, keys bool, seqs map[string]int) (tasks []queue.Task, jobs []*toldJob) {
	for i := range 10 {
		task := queue.Task{Kind: "note", Args: i, MaxAttempts: 25}
		j := &toldJob{atMost: 1}
		switch {
		case i == 0:
			task.Delay = rand.N(300 * time.Millisecond)
		case i == 1:
			task.MaxAttempts = 2
		case !keys:
		case i < 5:
			task.Group = groups + fmt.Sprint(rand.N(3))
			seqs[task.Group]++
			j.seq = seqs[task.Group]
		case i < 7:
			task.Group, task.AtMost, j.atMost = "three", 3, 3
		case i < 9:
			task.Unique = fmt.Sprint(rand.N(5))
		}
		j.max, j.group, j.unique = task.MaxAttempts, task.Group, task.Unique
		tasks, jobs = append(tasks, task), append(jobs, j)
	}
	return tasks, jobs
}

// wants tells whether few enough jobs wait: what is rescued is to be begun soon.
func (d *env) wants(ctx context.Context) bool {
	ready, blocked := backlog, backlog
	err := d.db.QueryRowContext(ctx, fmt.Sprintf(`SELECT (SELECT count(*) FROM (SELECT 1 FROM dblock_queue_ready LIMIT %d) r),
		(SELECT count(*) FROM (SELECT 1 FROM dblock_queue_blocked LIMIT %d) b)`, backlog, backlog)).Scan(&ready, &blocked)
	return err == nil && ready < backlog && blocked < backlog
}
