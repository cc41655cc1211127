package queue

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

const (
	workers    = 8               // processes
	strikeEach = 2 * time.Second // that one of them is killed
	backlog    = 100             // no more is enqueued while so many wait
)

// soakTime is for how long a test of faults goes on: for as long as DBLOCK_SOAK says, where it does.
func soakTime(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	soak := os.Getenv(suite.EnvSoak)
	if soak == "" {
		return short
	}
	lasts, err := time.ParseDuration(soak)
	if err != nil {
		t.Fatalf("%s: %v", suite.EnvSoak, err)
	}
	return lasts
}

// runWorkersFaults has workers and their server suffer, each test by itself on the machine.
func (e Queue) runWorkersFaults(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"SurvivesFaults", survivesFaults},
		{"AZombieIsRefused", aZombieIsRefused},
		{"ControlWithoutTheFence", controlWithoutTheFence},
		{"NobodyMeetsADeadlock", nobodyMeetsADeadlock},
		{"ASlowNetworkStrandsNoJob", aSlowNetworkStrandsNoJob},
		{"ARestartStrandsNoJob", aRestartStrandsNoJob},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e.env(t)) })
	}
}

// onAServerOfItsOwn is an env on a server that may be killed. Where the server is given it stays where it is, and server is nil.
func (d *env) onAServerOfItsOwn(t *testing.T) (own *env, server *devdb.Server) {
	t.Helper()
	server, dsn, db := suite.ServerOfItsOwn(t, d.e.Kind)
	if server == nil {
		return d, nil
	}
	return &env{d.e, dsn, db}, server
}

// Eight processes do jobs of 5 to 20 ms for 10 s, or as long as DBLOCK_SOAK says, while one of them is killed every 2 s, others stand still
// for longer than the TTL, replies get lost, and the server is killed once. Then all is done, and judged.
func survivesFaults(t *testing.T, d *env) {
	lasts := soakTime(t, 10*time.Second)
	d, server := d.onAServerOfItsOwn(t)
	c := d.crew(t, howFaulty, workers)
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var told teller
	var work sync.WaitGroup
	for p := range 3 {
		work.Go(func() { told.produce(ctx, t, d, p) })
	}
	c.strike(ctx, t, server, lasts)
	work.Wait()
	d.drained(t)
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0) // of those who were killed when they had no jobs any more
	l := newWorkLog(faultyTTL, told.jobs, c.stop(t), d.deadJobs(t))
	for i, fault := range l.check() {
		if i < 20 {
			t.Error(fault)
		}
	}
	d.empty(t)
	t.Logf("%d duplicates refused; %s", told.duplicates, l.tally())
	rare := len(l.dead) == 0 || told.duplicates == 0 // on a machine that gets little done
	if l.mishaps[everybody] == nil && server != nil || rare && os.Getenv(suite.EnvSoak) != "" {
		t.Error("something did not happen at all: this shows too little")
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_history h JOIN dblock_queue_dead d ON d.job_id = h.job_id WHERE h.outcome = 3"); n < int64(len(l.dead)) {
		t.Errorf("of %d dead jobs history knows %d", len(l.dead), n)
	}
}

// strike kills a worker every 2 s, freezes others, and kills the server in the middle.
func (c *crew) strike(ctx context.Context, t *testing.T, server *devdb.Server, lasts time.Duration) {
	tick := time.NewTicker(strikeEach / 2)
	defer tick.Stop()
	half := time.Now().Add(lasts / 2)
	var thaws sync.WaitGroup
	defer func() {
		thaws.Wait()
		c.thawed()
	}()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.thawed()
		switch {
		case n%2 == 0:
			c.killOne(t)
		case n%4 == 1:
			if h := c.freezeOne(); h != nil {
				thaws.Go(func() { c.thaw(h) })
			}
		}
		if server != nil && time.Now().After(half) {
			c.killServer(t, server)
			server = nil
		}
	}
}

func (c *crew) killOne(t *testing.T) {
	h := c.any()
	if h == nil {
		return
	}
	from := suite.Uptime()
	h.Kill()
	h.killed = true
	c.befell(h.n, wasKilled, from, suite.Uptime())
	c.hire(t)
}

// freezeOne stops a process that has jobs. It is to be thawed.
func (c *crew) freezeOne() *workman {
	for range 30 {
		h := c.any()
		if h == nil {
			return nil
		}
		since := suite.Uptime()
		_ = suite.Suspend(h.Process)
		if c.claims(h) > 0 {
			h.frozen, h.since, h.over = true, since, make(chan struct{})
			return h
		}
		_ = suite.Resume(h.Process)
	}
	return nil
}

// claims is how many a living process has; less than none: nobody knows.
func (c *crew) claims(h *workman) (n int) {
	query := "SELECT count(*) FROM dblock_queue_claim c JOIN dblock_member m ON m.member_id = c.member_id WHERE m.label = 'worker %d'"
	if err := c.d.db.QueryRowContext(context.Background(), fmt.Sprintf(query, h.n)).Scan(&n); err != nil {
		return -1 // the server is down
	}
	return n
}

// thaw has it go on once it was taken for dead, and others had time to begin its jobs.
func (c *crew) thaw(h *workman) {
	defer close(h.over)
	late := time.Now().Add(5 * faultyTTL)
	for time.Sleep(faultyTTL); c.claims(h) != 0 && time.Now().Before(late); time.Sleep(20 * time.Millisecond) {
	}
	time.Sleep(faultyTTL / 4)
	_ = suite.Resume(h.Process)
	h.until = suite.Uptime()
}

// thawed takes note of those who have gone on.
func (c *crew) thawed() {
	for _, h := range c.all {
		if !h.frozen {
			continue
		}
		select {
		case <-h.over:
			h.frozen = false
			c.befell(h.n, wasFrozen, h.since, h.until)
		default:
		}
	}
}

func (c *crew) killServer(t *testing.T, server *devdb.Server) {
	from := suite.Uptime()
	if err := server.Kill(); err != nil {
		t.Error(err)
	}
	if err := server.Restart(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	c.befell(everybody, wasDown, from, suite.Uptime())
}

// drained waits until all jobs have ended.
func (d *env) drained(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for n := -1; n != 0; {
		if err := d.db.QueryRowContext(ctx, "SELECT count(*) FROM dblock_queue_job").Scan(&n); err != nil {
			t.Fatalf("%d jobs have not ended: %v", n, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// deadJobs are the last errors of those that were given up.
func (d *env) deadJobs(t *testing.T) map[string]string {
	t.Helper()
	rows, err := d.db.QueryContext(t.Context(), "SELECT job_id, last_error FROM dblock_queue_dead")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	dead := make(map[string]string)
	for rows.Next() {
		var raw []byte
		var last string
		if err := rows.Scan(&raw, &last); err != nil {
			t.Fatal(err)
		}
		var id queue.ID
		if len(raw) == len(id) {
			copy(id[:], raw)
		} else if id, err = queue.ParseID(strings.ToLower(string(raw))); err != nil {
			t.Fatal(err)
		}
		dead[id.String()] = last
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return dead
}
