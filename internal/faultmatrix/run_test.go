package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	faultTime = 1500 * time.Millisecond // longer than the TTL
	runLimit  = 10 * time.Minute

	// slowLook is how much of the time counts that a look takes. Where looks take longer, the
	// machine is overloaded, and what is looked for takes longer, too.
	slowLook = 100 * time.Millisecond
)

// Run is what one run of the workload under one fault has shown.
type Run struct {
	Strikes    int // of the fault
	Ops        int
	Violations violations
	Control    violations
}

// runOnce runs the workload under a fault, in a database of its own.
func runOnce(ctx context.Context, s servers, f Fault) (r Run, err error) {
	program := ""
	if f.ClockSteps {
		if program, err = steppingProgram(ctx); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(filepath.Dir(program))) }()
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	e, err := newEnv(ctx, s, f)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	e.program = program
	if err := e.start(ctx); err != nil {
		return r, err
	}
	control, endControl := context.WithCancel(ctx)
	defer endControl()
	w := e.worker
	var controls sync.WaitGroup
	controls.Go(func() { w.leakControl(control) })
	controls.Go(func() { w.holdForHang(control) })
	controls.Go(func() { w.hangControl(control) })
	time.Sleep(200 * time.Millisecond)

	r.Strikes, err = f.inject(ctx, e)
	e.heal()
	if err != nil {
		return r, fmt.Errorf("the fault: %w", err)
	}
	time.Sleep(300 * time.Millisecond)
	if err := e.stopOps(ctx); err != nil {
		return r, err
	}
	var t tables
	e.drain(ctx, &t)
	soon(ctx, 30*time.Second, w.hangs)
	endControl()
	controls.Wait()
	if err := e.endChildren(ctx); err != nil {
		return r, err
	}
	e.findLeaks(ctx, &t)
	if err := w.end(); err != nil {
		t.leaks = append(t.leaks, fmt.Sprintf("worker 0 ended with %v", err))
	}
	e.findConnections(ctx, &t)
	if err := e.readTables(ctx, &t); err != nil {
		return r, err
	}
	ops, err := e.history()
	if err != nil {
		return r, err
	}
	r.Ops, r.Violations, r.Control = len(ops), check(ops, t, false), check(ops, t, true)
	return r, nil
}

// heal ends what the fault does to the network and to answers.
func (e *env) heal() {
	if e.wire != nil {
		e.wire.Disarm()
	}
	e.link.mend()
	e.link.dialer.Release()
}

// soon asks until it is true, for a while, which slow looks make longer.
func soon(ctx context.Context, limit time.Duration, is func() bool) bool {
	for left := limit; ; {
		began := time.Now()
		switch {
		case is():
			return true
		case ctx.Err() != nil || left <= 0:
			return false
		}
		time.Sleep(20 * time.Millisecond)
		left -= min(time.Since(began), slowLook)
	}
}

// drain waits until all jobs have ended and no claim, key or place of a group is left. A job that
// has no place any more never ends, however long it waits.
func (e *env) drain(ctx context.Context, t *tables) {
	claimed := "c.job_id = j.job_id"
	if e.kind == devdb.Postgres {
		claimed = "j.job_id = ANY (c.job_ids)"
	}
	// One statement has one snapshot, in which each job has a place.
	jobs := "SELECT count(*), count(CASE WHEN NOT EXISTS (SELECT 1 FROM dblock_queue_ready r WHERE r.job_id = j.job_id) AND NOT EXISTS " +
		"(SELECT 1 FROM dblock_queue_scheduled s WHERE s.job_id = j.job_id) AND NOT EXISTS (SELECT 1 FROM dblock_queue_blocked b WHERE " +
		"b.job_id = j.job_id) AND NOT EXISTS (SELECT 1 FROM dblock_queue_claim c WHERE " + claimed +
		") THEN 1 END) FROM dblock_queue_job j"
	left, nowhere := -1, 0
	ended := soon(ctx, time.Minute, func() bool {
		err := e.admin.QueryRowContext(ctx, jobs).Scan(&left, &nowhere)
		return err == nil && (left == 0 || nowhere > 0)
	})
	switch {
	case nowhere > 0:
		t.lost = append(t.lost, fmt.Sprintf("%d of %d jobs are neither ready, nor scheduled, nor blocked, nor claimed", nowhere, left))
	case !ended:
		where, err := e.texts(ctx, "SELECT concat('ready ', (SELECT count(*) FROM dblock_queue_ready), ', scheduled ', (SELECT count(*) FROM "+
			"dblock_queue_scheduled), ', claims ', (SELECT count(*) FROM dblock_queue_claim), ', attempt ', coalesce(max(attempt), 0)) FROM dblock_queue_job")
		t.lost = append(t.lost, fmt.Sprintf("%d jobs have not ended: %q %v", left, where, err))
	}
	free := soon(ctx, 30*time.Second, func() bool {
		err := e.admin.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM dblock_queue_claim) + (SELECT count(*) FROM dblock_queue_unique) + "+
			"(SELECT coalesce(sum(taken), 0) FROM dblock_queue_key)").Scan(&left)
		return err == nil && left == 0
	})
	if !free {
		t.leaks = append(t.leaks, fmt.Sprintf("%d claims, unique keys and places of groups are left", left))
	}
}

// findLeaks has another process acquire each key, while the control still holds its own.
func (e *env) findLeaks(ctx context.Context, t *tables) {
	const patience = time.Minute // a leak lasts
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(leaseKeys)+3)*patience)
	defer cancel()
	leak := func(key string, err error) {
		t.leaks = append(t.leaks, fmt.Sprintf("%s can't be acquired: %v", key, err))
	}
	c, err := openClient(ctx, e.config(1000))
	if err != nil {
		leak("nothing", err)
		return
	}
	acquire := func(l dblock.Locker, key string, opts ...dblock.Option) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		var err error
		soon(ctx, patience, func() bool { // a busy machine may need more than one try
			var lock *dblock.Lock
			if lock, err = l.Acquire(ctx, key, opts...); err == nil {
				_ = lock.Release(ctx)
			}
			return err == nil
		})
		if err != nil {
			leak(key, err)
		}
	}
	for _, key := range leaseKeys {
		acquire(c.leases, key)
	}
	acquire(c.leases, permitKey, dblock.WithPermits(permitLimit, permitLimit))
	if c.sessions != nil {
		acquire(c.sessions, sessionKey)
	}
	rows, err := e.texts(ctx, "SELECT l.lease_key FROM dblock_lease l JOIN dblock_member m ON m.member_id = l.member_id "+
		"WHERE l.handle IS NOT NULL AND l.lease_key LIKE 'control-leak%'")
	if err != nil {
		leak("nothing", err)
	}
	t.controlLeaks = rows
	if err := c.close(ctx); outcomeOf(err) == unnamed {
		leak("nothing", err)
	}
}

// findConnections counts those that the workers have not closed.
func (e *env) findConnections(ctx context.Context, t *tables) {
	if soon(ctx, 30*time.Second, func() bool { return e.link.open() == 0 }) {
		return
	}
	last := "SELECT concat(state, ': ', query) FROM pg_stat_activity WHERE usename = '%s'"
	if e.kind != devdb.Postgres {
		last = "SELECT concat(command, ': ', coalesce(info, '')) FROM " + devdb.Processlist + " WHERE user = '%s'"
	}
	statements, err := e.ids(ctx, last)
	t.leaks = append(t.leaks, fmt.Sprintf("%d connections are open; the server has %q, %v", e.link.open(), statements, err))
}

// texts reads a column.
func (e *env) texts(ctx context.Context, query string) (all []string, err error) {
	rows, err := e.admin.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var b []byte
		if err := rows.Scan(&b); err != nil {
			return nil, err
		}
		all = append(all, string(b))
	}
	return all, rows.Err()
}

// readTables reads what the checkers need.
func (e *env) readTables(ctx context.Context, t *tables) error {
	t.writes, t.effects, t.dead = make(map[string]bool), make(map[string]int), make(map[string]bool)
	t.standing, t.orders, t.values = make(map[string]bool), make(map[string]bool), make(map[string]int64)
	payload := "payload"
	if e.kind == devdb.Postgres {
		payload = "convert_from(payload, 'UTF8')"
	}
	for query, take := range map[string]func(string){
		"SELECT id FROM matrix_write":                                    func(s string) { t.writes[s] = true },
		"SELECT job FROM matrix_effect":                                  func(s string) { t.effects[s]++ },
		"SELECT " + payload + " FROM dblock_queue_dead":                  func(s string) { t.dead[s[1:len(s)-1]] = true }, // JSON
		"SELECT " + payload + " FROM dblock_queue_job":                   func(s string) { t.standing[s[1:len(s)-1]] = true },
		"SELECT reservation_key FROM dblock_reservation WHERE state = 2": func(s string) { t.orders[s] = true },
		"SELECT concat(k, ' ', v) FROM matrix_value": func(s string) {
			var key string
			var n int64
			_, _ = fmt.Sscan(s, &key, &n)
			t.values[key] = n
		},
		// Books: what came in is what is left and what was sold.
		"SELECT concat(s.sku, ' has ', s.available, ' left') FROM dblock_stock s WHERE s.available + (SELECT count(*) FROM dblock_reservation r " +
			"WHERE r.sku = s.sku AND r.state = 2) <> (SELECT a.delta FROM dblock_adjustment a WHERE a.sku = s.sku)": func(s string) {
			t.lost = append(t.lost, "the books of "+s)
		},
		"SELECT concat(a.sku, ' was oversold') FROM dblock_adjustment a WHERE a.delta < (SELECT count(*) FROM dblock_reservation r " +
			"WHERE r.sku = a.sku AND r.state = 2)": func(s string) { t.oversold = append(t.oversold, s) },
	} {
		rows, err := e.texts(ctx, query)
		if err != nil {
			return err
		}
		for _, row := range rows {
			take(row)
		}
	}
	return nil
}
