package mysqllock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/pace"
)

// passes is how often a locked row is tried again at once. A request for a held key locks its row
// for a moment, a guard for long: only a guard is worth waiting for another heartbeat.
const passes = 8

// Release releases what is still held of a batch.
func (d *leaseDriver) Release(ctx context.Context, b lease.ReleaseBatch) ([]lease.ReleaseResult, error) {
	switch b.Kind {
	case lease.KindSet:
		return d.leases.releaseSet(ctx, b.Requests)
	case lease.KindFair:
		return d.tickets.passOnAll(ctx, b.Requests)
	case lease.KindPermits:
		return d.permits.releasePermits(ctx, b.Requests)
	case lease.KindShared:
		return release(ctx, b.Requests, d.readers.freeShared, d.readers.findHeld)
	}
	return d.leases.release(ctx, b.Requests)
}

// release is one UPDATE if all of a batch are ours, and one SELECT more if not all were
// freed. The server counts what it freed, and does not say which. Where some were freed, a lease
// that has its token counts as freed if its row is not ours any more: another process may have the
// key by now. One without its token does not: the acquisition may be under way still.
func (l *leaseRows) release(ctx context.Context, backs []lease.ReleaseRequest) ([]lease.ReleaseResult, error) {
	return release(ctx, backs, l.free, l.findHeld)
}

// release frees rows, and looks which of them still stand if it has not freed all.
func release(
	ctx context.Context, backs []lease.ReleaseRequest, free func(context.Context, []lease.ReleaseRequest, []int) (int64, error),
	standing func(context.Context, []lease.ReleaseRequest, []int, int64, []lease.ReleaseResult) ([]int, error),
) ([]lease.ReleaseResult, error) {
	results := make([]lease.ReleaseResult, len(backs))
	left := places(len(backs))
	for n := 1; ; n++ {
		freed, err := free(ctx, backs, left)
		if err != nil {
			return nil, err
		}
		if freed == int64(len(left)) {
			for _, i := range left {
				results[i] = lease.ReleaseResult{Freed: true}
			}
			return results, nil
		}
		if left, err = standing(ctx, backs, left, freed, results); err != nil {
			return nil, half(err, freed > 0)
		}
		if len(left) == 0 || n == passes || !again(ctx, n) {
			return results, nil
		}
	}
}

// free releases those at the given places.
func (l *leaseRows) free(ctx context.Context, backs []lease.ReleaseRequest, at []int) (freed int64, err error) {
	if len(at) == 1 {
		return l.freeOne(ctx, backs[at[0]])
	}
	if l.db.MariaDB {
		freed, err = l.freeAlike(ctx, backs, at)
		if !mysql.IsLocked(err) {
			return freed, err
		}
	}
	var args []any
	for _, i := range at {
		args = append(args, []byte(backs[i].Key), backs[i].Handle[:], backs[i].Token)
	}
	freed, _, err = l.change(ctx, mysqldb.ReleaseLeases, args)
	return freed, err
}

// freeAlike fails as locked if any of the rows is.
func (l *leaseRows) freeAlike(ctx context.Context, backs []lease.ReleaseRequest, at []int) (freed int64, err error) {
	var keys, handles mysql.List
	for _, i := range at {
		keys, handles = append(keys, []byte(backs[i].Key)), append(handles, backs[i].Handle[:])
	}
	freed, _, err = l.changeAtOnce(ctx, mysqldb.ReleaseAlike, []any{keys, handles})
	return freed, err
}

// findHeld reads which rows are still ours, and notes which of the others were freed: all, if
// they are as many as were freed.
func (l *leaseRows) findHeld(
	ctx context.Context, backs []lease.ReleaseRequest, at []int, freed int64, results []lease.ReleaseResult,
) (left []int, err error) {
	keys := make([][]byte, len(at))
	places := make(map[string]int, len(at))
	for n, i := range at {
		keys[n] = []byte(backs[i].Key)
		places[backs[i].Key] = i
		results[i] = lease.ReleaseResult{}
	}
	rows, err := read(ctx, l.conns, func(on mysqldb.DBTX) ([]mysqldb.LeaseHandlesRow, error) {
		return l.q.LeaseHandles(ctx, on, keys)
	})
	for _, r := range rows {
		i := places[string(r.LeaseKey)]
		b := backs[i]
		if r.Handle.Valid && id(r.Handle.String) == b.Handle && (b.Token == 0 || b.Token == r.Token) {
			results[i].Held = true
			left = append(left, i)
		} else {
			results[i].Freed = freed > 0 && b.Token != 0
		}
	}
	if freed == int64(len(at)-len(left)) {
		for _, i := range at {
			results[i].Freed = !results[i].Held
		}
	}
	return left, err
}

// again waits a little before another pass. It reports false if ctx ends.
func again(ctx context.Context, pass int) bool {
	return pace.Sleep(ctx, rand.N(time.Millisecond<<min(pass, 3))) == nil
}

// releaseSet is one UPDATE if all of a set are ours. If some are not any more, or are locked, a
// SELECT counts them.
func (l *leaseRows) releaseSet(ctx context.Context, backs []lease.ReleaseRequest) ([]lease.ReleaseResult, error) {
	results := make([]lease.ReleaseResult, len(backs))
	at := places(len(backs))
	for n := 1; ; n++ {
		var args []any
		for _, i := range at {
			args = append(args, []byte(backs[i].Key), backs[i].Handle[:])
		}
		freed, _, err := l.change(ctx, mysqldb.ReleaseSet, append(args, int64(len(at))))
		if err != nil {
			return nil, err
		}
		if freed > 0 {
			for _, i := range at {
				results[i] = lease.ReleaseResult{Freed: true}
			}
			return results, nil
		}
		if at, err = l.findHeld(ctx, backs, at, 0, results); err != nil {
			return nil, err
		}
		if len(at) == 0 || n == passes || !again(ctx, n) {
			return results, nil
		}
	}
}
