package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/queue"
)

// readOnlyServer is a MySQL or MariaDB server of its own that becomes read-only and back.
type readOnlyServer struct {
	kind devdb.Kind
	dsn  string // of a user that may not write while it is read-only
	db   *sql.DB
}

func newReadOnlyServer(t *testing.T, kind devdb.Kind) *readOnlyServer {
	t.Helper()
	server, dsn, db := serverOfItsOwn(t, kind)
	if server == nil {
		return nil
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	s := &readOnlyServer{kind: kind, db: db}
	s.exec(t, "CREATE USER app IDENTIFIED BY 'app'")
	s.exec(t, "GRANT ALL ON "+cfg.DBName+".* TO app")
	cfg.User, cfg.Passwd = "app", "app"
	s.dsn = cfg.FormatDSN()
	return s
}

func (s *readOnlyServer) exec(t *testing.T, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.db.ExecContext(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// become waits for the commits and the statements under way, as each server does.
func (s *readOnlyServer) become(t *testing.T, readOnly bool) {
	t.Helper()
	switch {
	case !readOnly:
		s.exec(t, "SET GLOBAL read_only = OFF")
	case s.kind == devdb.MySQL:
		s.exec(t, "SET GLOBAL super_read_only = ON")
	default:
		s.exec(t, "SET GLOBAL read_only = ON")
	}
}

// saysReadOnly fails unless err says that nothing was written to what, why, and what to do.
func saysReadOnly(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Errorf("%s: %v, want dblock.ErrUnavailable", what, err)
		return
	}
	for _, part := range []string{what, "read-only: connect to the primary"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

// RunReadOnly sells while the server becomes read-only and back. The switch and all calls end, and what they say is true.
func (e Inventory) RunReadOnly(t *testing.T) {
	s := newReadOnlyServer(t, e.Kind)
	if s == nil {
		return
	}
	for _, strategy := range []inventory.Strategy{inventory.Merge, inventory.Direct, inventory.ForUpdate} {
		store, done, err := e.Open(t.Context(), s.dsn, inventory.Options{Strategy: strategy})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(done)
		sellReadOnly(t, s, store, "sku-"+strategy.String())
	}
}

// sellReadOnly has callers sell while the server becomes read-only and back.
func sellReadOnly(t *testing.T, s *readOnlyServer, store *inventory.Store, sku string) {
	t.Helper()
	const sellers, stock = 50, 1_000_000
	if _, err := store.Restock(t.Context(), inventory.Adjustment{ID: sku, SKU: sku, Delta: stock}); err != nil {
		t.Fatal(err)
	}
	var phase atomic.Int32
	var said [sellers]atomic.Int32 // the phase and the answer of the last call
	sold, refused := sync.Map{}, sync.Map{}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for seller := range sellers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began, key := phase.Load(), fmt.Sprintf("%s/%d/%d", sku, seller, n)
				_, err := store.Reserve(t.Context(), inventory.Request{Key: key, SKU: sku, Buyer: "b", Qty: 1})
				if err != nil {
					saysReadOnly(t, key, err)
					refused.Store(key, true)
					said[seller].Store(10*began + 1)
					time.Sleep(time.Millisecond) // its buyer reads the error
					continue
				}
				sold.Store(key, true)
				said[seller].Store(10 * began)
			}
		})
	}
	each := func(what string, want int32) {
		t.Helper()
		until(t, what, func() bool {
			for i := range said {
				if said[i].Load() != want {
					return false
				}
			}
			return true
		})
	}
	phase.Store(1)
	each("each seller sells", 10)
	s.become(t, true)
	phase.Store(2)
	each("each seller reads that the server is read-only", 21)
	s.become(t, false)
	phase.Store(3)
	each("each seller sells again", 30)
	stop()
	all.Wait()
	checkReadOnlySale(t, s, sku, stock, &sold, &refused)
}

// checkReadOnlySale compares what sellers were told with the server's tables.
func checkReadOnlySale(t *testing.T, s *readOnlyServer, sku string, stock int64, sold, refused *sync.Map) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), "SELECT reservation_key FROM dblock_reservation WHERE sku = ?", []byte(sku))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	recorded := int64(0)
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			t.Fatal(err)
		}
		recorded++
		if _, ok := refused.Load(key); ok {
			t.Errorf("order %q is recorded, and its seller was told that nothing was written", key)
		}
		sold.Delete(key)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	sold.Range(func(key, _ any) bool {
		t.Errorf("order %q was sold and is not recorded", key)
		return true
	})
	var left int64
	if err := s.db.QueryRowContext(t.Context(), "SELECT SUM(available) FROM dblock_stock WHERE sku = ?", []byte(sku)).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left+recorded != stock {
		t.Errorf("%d units are left and %d are sold, of %d", left, recorded, stock)
	}
}

// RunReadOnly acquires and keeps locks while the server becomes read-only and back.
func (e Lease) RunReadOnly(t *testing.T) {
	s := newReadOnlyServer(t, e.Kind)
	if s == nil {
		return
	}
	locker, done, err := e.Open(t.Context(), s.dsn, LeaseOptions{TTL: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		works(t, "close", locker.Close(ctx))
	}()
	acquire := func(key string, opts ...dblock.Option) *dblock.Lock {
		t.Helper()
		lock, err := locker.TryAcquire(t.Context(), key, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
	kept, given := acquire("kept"), acquire("given back")
	s.become(t, true)
	_, err = locker.TryAcquire(t.Context(), "free")
	saysReadOnly(t, `"free"`, err)
	_, err = locker.Acquire(t.Context(), "free") // no wait can help
	saysReadOnly(t, `"free"`, err)
	works(t, "a release, which goes on until the lock has ended by itself", given.Release(t.Context()))
	select {
	case <-kept.Context().Done(): // heartbeats fail, so it ends before others may have it
		if !errors.Is(context.Cause(kept.Context()), dblock.ErrLost) {
			t.Errorf("the lock ended with %v", context.Cause(kept.Context()))
		}
	case <-time.After(time.Minute):
		t.Error("a lock without heartbeats goes on")
	}
	_ = kept.Release(t.Context())
	s.become(t, false)
	for _, key := range []string{"free", "given back", "kept"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		lock, err := locker.Acquire(ctx, key)
		cancel()
		if err != nil {
			t.Fatalf("after the server writes again: %v", err)
		}
		works(t, "release", lock.Release(t.Context()))
	}
}

// RunReadOnly enqueues and works while the server becomes read-only and back.
func (e Queue) RunReadOnly(t *testing.T) {
	s := newReadOnlyServer(t, e.Kind)
	if s == nil {
		return
	}
	q, done, err := e.Open(t.Context(), s.dsn, queue.Options{TTL: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	defer func() { works(t, "close", q.Close(t.Context())) }()
	begun, proceed := make(chan int, 100), make(chan struct{})
	if err := queue.Handle(q, "k", func(_ context.Context, job queue.Job[int]) error {
		begun <- job.Args
		if job.Args == 1 {
			<-proceed
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	enqueue := func(n int) error {
		_, err := q.Enqueue(t.Context(), queue.Task{Kind: "k", Args: n})
		return err
	}
	works(t, "enqueue", enqueue(1))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Work(ctx, queue.WorkerOptions{}) }()
	defer func() { stop(); works(t, "work", <-ended) }()
	if n := <-begun; n != 1 {
		t.Fatalf("job %d began", n)
	}
	s.become(t, true)
	saysReadOnly(t, "enqueuing", enqueue(2))
	close(proceed)
	s.become(t, false)
	works(t, "enqueue", enqueue(3))
	for range 2 { // job 1 again if its end was not recorded in time
		if n := <-begun; n == 3 {
			break
		}
	}
	until(t, "all jobs are done", func() bool {
		var n int
		if err := s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dblock_queue_job").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}
