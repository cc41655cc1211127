package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

var (
	aReader = part{some: []dblock.Option{dblock.WithShared()}}
	permits = part{some: []dblock.Option{dblock.WithPermits(2, 3)}, whole: []dblock.Option{dblock.WithPermits(3, 3)}}
)

// aReaderCutAnywhere, and the three below, are the acquisition and the release that are cut, of what several may have: nobody is
// counted twice, and none for ever.
func aReaderCutAnywhere(t *testing.T, v *env) {
	v.cutAcquires(t, aReader, false)
	v.nobodyIsLeft(t)
}

func aReadersEndCutAnywhere(t *testing.T, v *env) {
	v.cutReleases(t, aReader)
	v.nobodyIsLeft(t)
}

func aPermitCutAnywhere(t *testing.T, v *env) {
	v.cutAcquires(t, permits, false)
	v.nobodyIsLeft(t, permits.whole...)
}

func aPermitsEndCutAnywhere(t *testing.T, v *env) {
	v.cutReleases(t, permits)
	v.nobodyIsLeft(t, permits.whole...)
}

// nobodyIsLeft takes the whole of all that is held when those have gone whose connections were cut. What arrived last
// may have been granted to one of them, who is dead: it gives way.
func (v *env) nobodyIsLeft(t *testing.T, whole ...dblock.Option) {
	t.Helper()
	l := v.process(t, LeaseOptions{})
	for _, table := range []string{"dblock_lease", "dblock_reader", "dblock_permit"} {
		held := " FROM " + table + " WHERE handle IS NOT NULL AND lease_key NOT LIKE 'warm%'" // they are given back at the very end
		for ctx := suite.Soon(t); v.count(t, "SELECT count(*)"+held) > 0 && ctx.Err() == nil; {
			var key string
			if err := v.db.QueryRowContext(ctx, "SELECT min(lease_key)"+held).Scan(&key); err != nil {
				t.Fatal(err)
			}
			if err := isFreeSoon(t, l, key, nil, whole...); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// aWaitForReadersCutAnywhere: a writer makes itself the holder, waits until the readers have gone, and takes the key.
// Wherever that is cut, it has the key alone or it keeps nobody out for long.
func aWaitForReadersCutAnywhere(t *testing.T, v *env) {
	readers := v.process(t, LeaseOptions{})
	suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (bool, error) {
		x, err := v.openCut(t, c, k)
		if err != nil {
			return false, err
		}
		defer x.end(t)
		warm, err := x.Acquire(t.Context(), fmt.Sprintf("warm %v %d", c, k))
		if err != nil {
			return false, err
		}
		defer func() { _ = warm.Release(t.Context()) }()
		return x.waitForReaders(t, v, readers)
	})
	v.nobodyIsLeft(t)
}

// waitForReaders is such a writer, which is cut.
func (x *cutLeases) waitForReaders(t *testing.T, v *env, readers Leases) (struck bool, err error) {
	key := x.Key()
	reads, err := readers.Acquire(t.Context(), key, dblock.WithShared())
	if err != nil {
		return false, err
	}
	x.Arm()
	var lock *dblock.Lock
	var told error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lock, told = x.Acquire(x.Ctx, key)
	}()
	err = v.isPending(t, key, ended)
	select {
	case <-ended:
		if told == nil {
			err = errors.Join(err, fmt.Errorf("%s: a writer has it beside a reader", key))
		}
	default:
	}
	err = errors.Join(err, reads.Release(t.Context()))
	<-ended
	struck = x.Heal()
	switch {
	case told != nil: // the holder that it made itself is given back in the background
		err = errors.Join(err, x.excused(struck, told))
	case lock.Context().Err() == nil:
		if next, mine := readers.TryAcquire(t.Context(), key, dblock.WithShared()); mine == nil && lock.Context().Err() == nil {
			err = errors.Join(err, fmt.Errorf("%s: a reader came in beside a writer", key), next.Release(t.Context()))
		}
		fallthrough
	default:
		if end := lock.Release(t.Context()); end != nil && !errors.Is(end, dblock.ErrLost) {
			err = errors.Join(err, end)
		}
	}
	return struck, errors.Join(err, isFreeSoon(t, readers, key, nil))
}

// isPending waits until a writer keeps readers out, or its call has ended.
func (v *env) isPending(t *testing.T, key string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		var n int
		query := fmt.Sprintf("SELECT count(*) FROM dblock_lease WHERE lease_key = '%s' AND handle IS NOT NULL", key)
		if err := v.db.QueryRowContext(ctx, query).Scan(&n); err != nil || n > 0 {
			return err
		}
		select {
		case <-ended:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}
