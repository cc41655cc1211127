package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// leasesOn is leases whose connections a dialer breaks.
func (s site) leasesOn(t *testing.T, dialer *faultconn.Dialer) (Leases, func()) {
	t.Helper()
	if s.kind == devdb.Postgres {
		cfg, err := pgxpool.ParseConfig(s.dsn)
		must(t, err)
		cfg.ConnConfig.DialFunc = dialer.DialContext
		l, end, err := openOnPool(t.Context(), cfg)
		must(t, err)
		return l, end
	}
	cfg, err := mysql.ParseDSN(s.dsn)
	must(t, err)
	cfg.DialFunc = dialer.DialContext
	l, end, err := openOnConfig(t.Context(), cfg)
	must(t, err)
	return l, end
}

// TestFaultsOfQuorumExpireIn cuts two of three nodes off while a lock is ended: no other process
// acquires the key before the lock has ended.
func TestFaultsOfQuorumExpireIn(t *testing.T) {
	t.Parallel()
	sites := sharedSites(t)
	var others []dblock.Locker
	for _, s := range sites {
		others = append(others, promised{s.leases(t)})
	}
	other, err := dblock.NewQuorum(others, dblock.QuorumOptions{})
	must(t, err)
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	var struck atomic.Int64
	var all sync.WaitGroup
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter, faultconn.Stall, faultconn.Late} {
		all.Go(func() {
			for k := 1; k <= 4; k++ {
				struck.Add(quorumExpires(t, sites, other, mode, k))
			}
		})
	}
	all.Wait()
	if struck.Load() == 0 {
		t.Error("nothing was ever struck: this test shows nothing")
	}
	t.Logf("%d connections were struck", struck.Load())
}

// quorumExpires is one trial, and returns how many nodes were cut off.
func quorumExpires(t *testing.T, sites []site, other *dblock.Quorum, mode faultconn.Mode, k int) (struck int64) {
	var dialers [3]faultconn.Dialer
	var nodes []dblock.Locker
	for i, s := range sites {
		l, end := s.leasesOn(t, &dialers[i])
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = l.Close(ctx)
			dialers[i].CloseAll()
			end()
		}()
		nodes = append(nodes, promised{l})
	}
	q, err := dblock.NewQuorum(nodes, dblock.QuorumOptions{NodeTimeout: quorumTTL / 8})
	if err != nil {
		t.Error(err)
		return 0
	}
	key := fmt.Sprint(mode, " ", k)
	lock, err := q.Acquire(suite.Soon(t), key)
	if err != nil {
		t.Error(err)
		return 0
	}
	for i := range dialers[:2] {
		dialers[i].Arm(k, mode, nil)
	}
	told := lock.ExpireIn(t.Context(), 300*time.Millisecond)
	for i := range dialers[:2] {
		if dialers[i].Disarm() {
			struck++
		}
		dialers[i].Release()
	}
	if told != nil && !errors.Is(told, dblock.ErrLost) && !suite.IsUnknown(told) && !errors.Is(told, dblock.ErrUnavailable) {
		t.Errorf("%s: told %v", key, told)
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		next, err := other.TryAcquire(t.Context(), key)
		if err != nil {
			continue
		}
		if lock.Context().Err() == nil {
			t.Errorf("%s: told %v, and two have it", key, told)
		}
		_ = next.Release(t.Context())
		break
	}
	_ = lock.Release(t.Context())
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = q.Close(ctx)
	return struck
}
