package lock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// servesInOrder has calls of several processes wait, one after the other; some give up. A holder that could hand over
// to its own process does not.
func servesInOrder(t *testing.T, p Place) {
	const waiting = 12
	var processes []Leases
	for range 3 {
		processes = append(processes, p.process(t, LeaseOptions{Fair: true}))
	}
	held := suite.Acquire(t, processes[0], "k")
	served := make(chan int, waiting)
	var calls sync.WaitGroup
	ctx, giveUp := context.WithCancel(suite.Soon(t))
	gaveUp := make(chan struct{}, waiting)
	for i := range waiting {
		l := processes[i/2%3]
		calls.Go(func() {
			if i%4 == 3 {
				if _, err := l.Acquire(ctx, "k"); !errors.Is(err, dblock.ErrNotAcquired) {
					t.Errorf("call %d gave up and was told %v", i, err)
				}
				gaveUp <- struct{}{}
				return
			}
			lock := suite.Acquire(t, l, "k")
			served <- i
			suite.Release(t, lock)
		})
		for p.Tickets(t) <= i {
			time.Sleep(time.Millisecond)
		}
	}
	for _, l := range processes {
		if _, err := l.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrNotAcquired) {
			t.Errorf("beside those who wait: %v", err)
		}
	}
	giveUp()
	for range waiting / 4 {
		<-gaveUp
	}
	for p.Tickets(t) > waiting-waiting/4 {
		time.Sleep(time.Millisecond)
	}
	suite.Release(t, held)
	calls.Wait()
	close(served)
	var order []int
	for i := range served {
		order = append(order, i)
	}
	if !slices.IsSorted(order) || len(order) != waiting-waiting/4 {
		t.Errorf("served in this order: %v", order)
	}
	suite.Release(t, suite.Acquire(t, processes[1], "k")) // no caller waits any more
	if n := p.Tickets(t); n != 0 {
		t.Errorf("%d tickets are left", n)
	}
}

// controlOvertakes is servesInOrder without tickets: a process hands over to its own callers first. Nothing tells that the
// second caller waits already, so it is tried until it did.
func controlOvertakes(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	for range 20 {
		held := suite.Acquire(t, a, "k")
		served := make(chan string, 2)
		var calls sync.WaitGroup
		wait := func(name string, l Leases) {
			calls.Go(func() {
				lock := suite.Acquire(t, l, "k")
				served <- name
				suite.Release(t, lock)
			})
		}
		wait("who came first", b)
		for _, _, waiters := p.Rows(t); waiters == 0; _, _, waiters = p.Rows(t) {
			time.Sleep(time.Millisecond)
		}
		wait("who came second", a)
		time.Sleep(50 * time.Millisecond)
		suite.Release(t, held)
		calls.Wait()
		if <-served == "who came second" {
			return
		}
	}
	t.Error("who came first was always served first: this shows nothing")
}

// fairAmongOthers takes over from the dead, keeps time, and refuses what it can't do.
func fairAmongOthers(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{Fair: true}), p.process(t, LeaseOptions{Fair: true})
	if !a.Caps().Fair || a.Caps().Shared || a.Caps().Permits {
		t.Errorf("it can do %+v", a.Caps())
	}
	for _, o := range []dblock.Option{dblock.WithShared(), dblock.WithPermits(1, 2)} {
		if _, err := a.Acquire(t.Context(), "k", o); !errors.Is(err, dblock.ErrUnsupported) {
			t.Errorf("another mode: %v", err)
		}
	}
	if _, err := a.AcquireAll(t.Context(), []string{"k", "l"}); !errors.Is(err, dblock.ErrUnsupported) {
		t.Errorf("a set: %v", err)
	}
	first := suite.Acquire(t, a, "k")
	got := make(chan *dblock.Lock, 1)
	go func() { got <- suite.Acquire(t, b, "k", dblock.WithMaxHold(time.Minute), dblock.WithLabel("next")) }()
	for p.Tickets(t) == 0 {
		time.Sleep(time.Millisecond)
	}
	suite.Release(t, first)
	second := <-got
	if token(t, second) <= token(t, first) || time.Until(second.ValidUntil()) > time.Minute {
		t.Errorf("token %d after %d, valid until %v", token(t, second), token(t, first), second.ValidUntil())
	}
	if err := p.Check(t.Context(), b, second); err != nil {
		t.Error(err)
	}
	go func() { got <- suite.Acquire(t, a, "k") }()
	for p.Tickets(t) == 0 {
		time.Sleep(time.Millisecond)
	}
	p.ForgetMembers(t) // the one who waits joins anew
	third := <-got
	if err := p.Check(t.Context(), b, second); err == nil {
		t.Error("the dead passes a guard")
	}
	_ = second.Release(t.Context()) // it learns of it by its next heartbeat
	suite.Release(t, third)
	ends := suite.Acquire(t, a, "k", dblock.WithMaxHold(50*time.Millisecond))
	suite.Release(t, suite.Acquire(t, b, "k"))
	suite.IsLost(t, ends, dblock.Ended)
}

const (
	fairProcesses = 8
	fairWaiters   = 25 // of each
	fairKilled    = 2
)

// servesTheLivingInOrder has the calls of several processes wait, of which some are killed.
func servesTheLivingInOrder(t *testing.T, v *env) {
	number := "SERIAL PRIMARY KEY"
	if v.e.Kind != devdb.Postgres {
		number = "INT AUTO_INCREMENT PRIMARY KEY"
	}
	v.exec(t, "CREATE TABLE served (n "+number+", handle VARCHAR(64))")
	l := v.process(t, LeaseOptions{Fair: true, TTL: 3 * time.Second})
	held := suite.Acquire(t, l, "k")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var children []*suite.Child
	for range fairProcesses {
		children = append(children, v.startHolder(t, ctx, waitsFairly))
	}
	defer func() {
		for _, c := range children {
			c.Kill()
		}
	}()
	for v.Tickets(t) < fairProcesses*fairWaiters {
		time.Sleep(10 * time.Millisecond)
	}
	want := v.handles(t, "SELECT handle FROM dblock_ticket ORDER BY ticket")
	began := time.Now()
	for _, c := range children[:fairKilled] {
		c.Kill()
	}
	suite.Release(t, held)
	living := (fairProcesses - fairKilled) * fairWaiters
	for v.count(t, "SELECT COUNT(*) FROM served") < int64(living) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	got := v.handles(t, "SELECT handle FROM served ORDER BY n")
	at := make(map[string]int)
	for i, handle := range want {
		at[handle] = i
	}
	t.Logf("%d served in %v", len(got), time.Since(began))
	if len(got) != living {
		t.Errorf("%d were served, want %d", len(got), living)
	}
	last := -1
	for i, handle := range got {
		place, waited := at[handle]
		if !waited || place <= last {
			t.Errorf("number %d to be served had place %d, after place %d", i, place, last)
		}
		last = place
	}
}

// handles reads the first column.
func (v *env) handles(t *testing.T, query string) (handles []string) {
	t.Helper()
	rows, err := v.db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var handle any
		if err := rows.Scan(&handle); err != nil {
			t.Fatal(err)
		}
		switch h := handle.(type) {
		case [16]byte:
			handles = append(handles, hex.EncodeToString(h[:]))
		case []byte:
			if len(h) == 16 {
				h = []byte(hex.EncodeToString(h))
			}
			handles = append(handles, plain(string(h)))
		case string:
			handles = append(handles, plain(h))
		default:
			t.Fatalf("a handle of type %T", handle)
		}
	}
	return handles
}

// plain leaves out what only Postgres writes.
func plain(uuid string) string {
	return string(slices.DeleteFunc([]byte(uuid), func(c byte) bool { return c == '-' }))
}

// waitFairly is what the processes of servesTheLivingInOrder do: each call notes that it was served.
func (e Lease) waitFairly(dsn string) error {
	ctx := context.Background()
	l, _, err := e.Open(ctx, dsn, LeaseOptions{Fair: true, TTL: 3 * time.Second})
	if err != nil {
		return err
	}
	db, err := sql.Open(suite.DriverOf(e.Kind), dsn)
	if err != nil {
		return err
	}
	var calls sync.WaitGroup
	errs := make(chan error, fairWaiters)
	for range fairWaiters {
		calls.Go(func() { errs <- serveOnce(ctx, l, db) })
	}
	calls.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	if err == nil {
		suite.WaitToGoOn()
	}
	return err
}

func serveOnce(ctx context.Context, l Leases, db *sql.DB) error {
	lock, err := l.Acquire(ctx, "k")
	if err != nil {
		return err
	}
	f, _ := lock.Fence()
	if _, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO served (handle) VALUES ('%x')", f.Handle)); err != nil {
		return err
	}
	return lock.Release(ctx)
}

// costsOneGrantEach counts what waiting with tickets costs: a grant has the same price, however many wait.
func costsOneGrantEach(t *testing.T, v *env) {
	const processes, each = 4, 25
	dialers := make([]faultconn.Dialer, processes)
	var all []Leases
	for i := range dialers {
		l, closePool, err := v.e.OpenOn(t.Context(), v.dsn, &dialers[i], LeaseOptions{Fair: true, TTL: time.Hour, Poll: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer closePool()
		defer func() { _ = l.Close(t.Context()) }()
		all = append(all, l)
	}
	first := suite.Acquire(t, all[0], "k")
	var calls sync.WaitGroup
	for i := range processes * each {
		calls.Go(func() {
			lock, err := all[i%processes].Acquire(suite.Soon(t), "k")
			if err != nil {
				t.Error(err)
				return
			}
			suite.Release(t, lock)
		})
	}
	for v.Tickets(t) < processes*each {
		time.Sleep(10 * time.Millisecond)
	}
	for i := range dialers {
		dialers[i].Arm(0, 0, nil)
	}
	began := time.Now()
	suite.Release(t, first)
	calls.Wait()
	trips := 0
	for i := range dialers {
		trips += dialers[i].Writes()
	}
	took := time.Since(began)
	polls := int(took/time.Second+1) * 100 * processes // those that nothing wakes ask 100 times a second at most
	t.Logf("%d grants in %v: %d round trips, %.1f a grant", processes*each, took, trips, float64(trips)/(processes*each))
	if v.e.Kind == devdb.Postgres {
		polls = processes * int(took/time.Second+1)
	}
	if most := 6*processes*each + polls; trips > most {
		t.Errorf("%d round trips, want %d at most", trips, most)
	}
}
