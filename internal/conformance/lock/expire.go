package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// expiresAllOrNothing locks the row of one of several keys: ExpireIn writes nothing then, and no other process gets
// another key of the set.
func expiresAllOrNothing(t *testing.T, v *env) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock, err := a.AcquireAll(suite.Soon(t), []string{"s1", "s2"})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := v.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM dblock_lease WHERE lease_key = 's2' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	const d = 100 * time.Millisecond
	if err := lock.ExpireIn(t.Context(), d); !errors.Is(err, dblock.ErrBusy) && !errors.Is(err, dblock.ErrLost) {
		t.Errorf("with a locked row: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * d)
	for _, key := range []string{"s1", "s2"} {
		if next, err := b.TryAcquire(t.Context(), key); err == nil {
			t.Errorf("%q has ended, though nothing was written", key)
			suite.Release(t, next)
		}
	}
	_ = lock.Release(t.Context()) // the lock has ended for its own process, as the server was slow to refuse
}

// anExpireInCutAnywhere ends a lock while the network breaks: no other process acquires the key
// before the lock has ended.
func anExpireInCutAnywhere(t *testing.T, v *env) {
	other := v.process(t, LeaseOptions{})
	single := func(opts ...dblock.Option) func(*cutLeases, string) (*dblock.Lock, error) {
		return func(x *cutLeases, key string) (*dblock.Lock, error) { return x.held(t, key, opts...) }
	}
	modes := map[string]struct {
		held  func(x *cutLeases, key string) (*dblock.Lock, error)
		whole []dblock.Option
	}{
		"alone": {held: single()}, "shared": {held: single(dblock.WithShared())},
		"permits": {held: single(dblock.WithPermits(2, 2)), whole: []dblock.Option{dblock.WithPermits(1, 2)}},
		"set": {held: func(x *cutLeases, key string) (*dblock.Lock, error) {
			return x.AcquireAll(suite.Soon(t), []string{key, key + " too"})
		}},
		"term": {held: func(x *cutLeases, key string) (*dblock.Lock, error) { return x.leads(t, key) }},
	}
	trial := func(mode string) func(c suite.Cut, k int) (bool, error) {
		m := modes[mode]
		return func(c suite.Cut, k int) (bool, error) {
			x, err := v.openCut(t, c, k)
			if err != nil {
				return false, err
			}
			defer x.end(t)
			key := fmt.Sprintf("%s %v %d", mode, c, k)
			lock, err := m.held(x, key)
			if err != nil {
				return false, err
			}
			defer func() {
				x.Dialer.CloseAll() // Close waits for a connection that is stalled
				_ = lock.Release(t.Context())
			}()
			return x.expires(t, lock, other, m.whole)
		}
	}
	var each sync.WaitGroup // the trials mostly wait
	for mode := range modes {
		for _, c := range suite.Cuts(false) {
			each.Go(func() { suite.Everywhere(t, []suite.Cut{c}, trial(mode)) })
		}
	}
	each.Wait()
}

// leads returns the lock of a term.
func (x *cutLeases) leads(t *testing.T, key string) (*dblock.Lock, error) {
	e, err := dblock.NewElector(x, key, dblock.ElectorOptions{})
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(t.Context())
	leads, ended := make(chan *dblock.Lock, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx, func(ctx context.Context, _ dblock.Fence) error {
			lock, _ := dblock.LockOf(ctx)
			leads <- lock
			<-ctx.Done()
			end() // one term is enough
			return nil
		})
	}()
	t.Cleanup(func() {
		end()
		<-ended
	})
	select {
	case lock := <-leads:
		return lock, nil
	case <-ended:
		return nil, errors.New("the candidate does not lead")
	}
}

// expires cuts an ExpireIn of lock, and has another process try its keys until its time is up.
func (x *cutLeases) expires(t *testing.T, lock *dblock.Lock, other Leases, whole []dblock.Option) (struck bool, err error) {
	x.Arm()
	told := lock.ExpireIn(x.Ctx, 300*time.Millisecond)
	struck = x.Heal()
	if told != nil && !errors.Is(told, dblock.ErrLost) {
		if err := x.excused(struck, told); err != nil {
			return struck, err
		}
	}
	for end := time.Now().Add(600 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, key := range lock.Keys() {
			next, err := other.TryAcquire(t.Context(), key, whole...)
			if err != nil {
				continue
			}
			if lock.Context().Err() == nil {
				err = fmt.Errorf("%s: told %w, and two have it", key, told)
			}
			return struck, errors.Join(err, next.Release(t.Context()))
		}
	}
	return struck, nil
}

// endsBeforeTheServer compares the end that a process believes in with the one that the server has: the process ends a
// margin earlier, however the end was given.
func endsBeforeTheServer(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{TTL: 2 * time.Minute, Margin: 2 * time.Second})
	const d, margin = 30 * time.Second, 2 * time.Second
	modes := map[string][]dblock.Option{
		"dblock_lease": nil, "dblock_reader": {dblock.WithShared()}, "dblock_permit": {dblock.WithPermits(1, 2)},
	}
	for table, mode := range modes {
		for how, opt := range map[string]dblock.Option{"max": dblock.WithMaxHold(d), "detached": dblock.WithoutRenewal(d), "moved": nil} {
			key := strings.TrimPrefix(table, "dblock_") + " " + how
			opts := mode
			if opt != nil {
				opts = append(opts[:len(opts):len(opts)], opt)
			}
			lock := suite.Acquire(t, l, key, opts...)
			if opt == nil {
				if err := lock.ExpireIn(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			left := "EXTRACT(epoch FROM held_until - clock_timestamp()) * 1000"
			if v.e.Kind != devdb.Postgres {
				left = "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), held_until) / 1000"
			}
			server := v.count(t, fmt.Sprintf("SELECT round(%s) FROM %s WHERE lease_key = '%s' AND handle IS NOT NULL", left, table, key))
			own := time.Until(lock.ValidUntil()) // measured later: it only gets less
			if by := time.Duration(server)*time.Millisecond - own; by < margin-time.Second {
				t.Errorf("%s: the process ends %v before the server", key, by)
			}
			if lock.Context().Err() != nil {
				t.Errorf("%s has ended: %v", key, context.Cause(lock.Context()))
			}
			suite.Release(t, lock) // Close waits for what is held
		}
	}
}
