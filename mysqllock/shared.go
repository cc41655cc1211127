package mysqllock

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// openings is how often readers come again at once, after a key was opened to them.
const openings = 3

// acquireShared is one INSERT if all keys of a batch are open to readers already. Those that are
// free are opened, and asked for again. What was held before is looked at first, so that a poll
// locks nothing.
func (r *readerRows) acquireShared(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	results := make([]lease.AcquireResult, len(asks))
	left := places(len(asks))
	looks := !slices.ContainsFunc(asks, func(a lease.AcquireRequest) bool { return !a.Contended })
	for n := 1; ; n++ {
		var err error
		if n > 1 || !looks {
			if left, err = r.insert(ctx, by, asks, left, results); err != nil {
				return failed(results, left, err)
			}
		}
		if len(left) == 0 {
			return results, nil
		}
		opened, err := r.open(ctx, by, asks, left, results)
		if err != nil {
			return failed(results, left, err)
		}
		left = slices.DeleteFunc(left, func(i int) bool { return results[i].Err != nil })
		if n == 1 && looks {
			left = slices.DeleteFunc(left, func(i int) bool { return results[i].Held || results[i].MemberGone })
			opened = len(left) > 0 // those that are open already have not been asked for
		}
		if !opened || len(left) == 0 || n == openings {
			return results, nil
		}
	}
}

// places are those of n asks.
func places(n int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	return at
}

// insert lets those at the given places in where keys are open; the others are left.
func (r *readerRows) insert(ctx context.Context, by lease.By, asks []lease.AcquireRequest, at []int, results []lease.AcquireResult) (left []int, err error) {
	args := []any{by.Member[:], by.Heartbeat}
	one := true
	for _, i := range at {
		a := asks[i]
		args = append(args, []byte(a.Key), a.Handle[:], keeper(by, a), a.Hold.Microseconds(), []byte(a.Label), a.Data)
		one = one && a.Key == asks[at[0]].Key
	}
	entered, token, err := r.grantAtOnce(ctx, mysqldb.AcquireShared, args)
	switch {
	case mysql.IsLocked(err) && len(at) == len(asks) && len(asks) > 1:
		return at, ofBatch(err, len(asks)) // nothing was granted before
	case mysql.IsLocked(err):
		return at, nil
	case err != nil || entered == 0:
		return at, err
	case entered == int64(len(at)) && one && token != 0:
		for n, answer := range counted(pick(asks, at), token) {
			results[at[n]] = answer
		}
		return nil, nil
	}
	if left, err = r.readGranted(ctx, asks, at, results, entered); err != nil {
		return at, half(err, true)
	}
	return left, nil
}

// readGranted reports which of the requests at the given indexes were granted, as so many were.
func (r *readerRows) readGranted(
	ctx context.Context, asks []lease.AcquireRequest, at []int, results []lease.AcquireResult, entered int64,
) (left []int, err error) {
	backs := make([]lease.ReleaseRequest, len(at))
	for n, i := range at {
		backs[n] = lease.ReleaseRequest{Key: asks[i].Key, Handle: asks[i].Handle}
	}
	tokens, err := r.readerTokens(ctx, backs)
	if err != nil {
		return nil, err
	}
	if int64(len(tokens)) < entered {
		return nil, errUnseen
	}
	for _, i := range at {
		token := tokens[asks[i].Handle]
		if token == 0 {
			left = append(left, i)
			continue
		}
		results[i] = lease.AcquireResult{Token: token, Handle: asks[i].Handle}
	}
	return left, nil
}

// readerTokens reads which acquisitions stand.
func (r *readerRows) readerTokens(ctx context.Context, backs []lease.ReleaseRequest) (map[lease.Handle]int64, error) {
	rows, err := read(ctx, r.conns, func(on mysqldb.DBTX) ([]mysqldb.ReaderHandlesRow, error) {
		return r.q.ReaderHandles(ctx, on, keysOf(backs), handlesIn(backs))
	})
	tokens := make(map[lease.Handle]int64, len(rows))
	for _, row := range rows {
		tokens[id(string(row.Handle))] = row.Token
	}
	return tokens, err
}

// keysOf lists each key once.
func keysOf(backs []lease.ReleaseRequest) [][]byte {
	return distinct(len(backs), func(i int) string { return backs[i].Key })
}

// askedKeys lists each key once.
func askedKeys(asks []lease.AcquireRequest) [][]byte {
	return distinct(len(asks), func(i int) string { return asks[i].Key })
}

func distinct(n int, key func(i int) string) (keys [][]byte) {
	once := make(map[string]bool, n)
	for i := range n {
		if k := key(i); !once[k] {
			once[k] = true
			keys = append(keys, []byte(k))
		}
	}
	return keys
}

func handlesIn(backs []lease.ReleaseRequest) [][]byte {
	handles := make([][]byte, len(backs))
	for i := range backs {
		handles[i] = backs[i].Handle[:]
	}
	return handles
}

// open names the holders of the keys at the given indexes, and makes the free ones shared. It
// returns false if none was free.
func (r *readerRows) open(ctx context.Context, by lease.By, asks []lease.AcquireRequest, at []int, results []lease.AcquireResult) (opened bool, err error) {
	seen, err := r.seeKeys(ctx, by, pick(asks, at))
	if err != nil {
		return false, err
	}
	missing, free := make(map[string]bool), make(map[string]member.ID)
	for _, i := range at {
		a := asks[i]
		row, is := seen[a.Key]
		results[i] = refused(row, a)
		switch {
		case !is:
			missing[a.Key] = true
			results[i] = lease.AcquireResult{}
		case !row.Alive, row.Shared && !row.Handle.Valid, !freeFor(row, a):
		default:
			free[a.Key] = a.DeadMember
		}
		results[i].Shared = false // readers exclude no request here
	}
	if err := r.makeUnheld(ctx, true, slices.Sorted(maps.Keys(missing))); err != nil {
		return false, err
	}
	for key, gone := range free {
		err := sqlerr.Unwritten(r.once(ctx, func(on mysqldb.DBTX) error {
			_, err := r.q.OpenShared(ctx, on, []byte(key), gone[:])
			return err
		}))
		for _, i := range at {
			if err != nil && asks[i].Key == key {
				results[i] = lease.AcquireResult{Err: err}
			}
		}
	}
	return len(missing)+len(free) > 0, nil
}

// seeKeys reads the rows of some keys.
func (l *leaseRows) seeKeys(ctx context.Context, by lease.By, asks []lease.AcquireRequest) (map[string]mysqldb.ReadLeasesRow, error) {
	rows, err := read(ctx, l.conns, func(on mysqldb.DBTX) ([]mysqldb.ReadLeasesRow, error) {
		return l.q.ReadLeases(ctx, on, by.Member[:], by.Heartbeat, askedKeys(asks))
	})
	seen := make(map[string]mysqldb.ReadLeasesRow, len(rows))
	for _, r := range rows {
		seen[string(r.LeaseKey)] = r
	}
	return seen, err
}

// makeUnheld makes rows that are missing, and grants nothing. The keys are in order. A key whose
// place another transaction has locked is found by halving, while there is time to wait for each
// half, and is left out.
func (l *leaseRows) makeUnheld(ctx context.Context, shared bool, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	statement, args := mysqldb.InsertFreeLeases, []any(nil)
	switch {
	case !l.db.MariaDB:
		statement = mysqldb.InsertUnheldSkipping
	case shared:
		statement = mysqldb.InsertShared
	}
	for _, key := range keys {
		args = append(args, []byte(key))
		switch {
		case l.db.MariaDB:
		case shared:
			args = append(args, int64(1))
		default:
			args = append(args, int64(0))
		}
	}
	err := l.bounded(ctx, mysql.AtOnce, func(on mysqldb.DBTX) error {
		_, err := on.ExecContext(ctx, statement, args...)
		return err
	})
	if half := len(keys) / 2; mysql.IsLocked(err) && half > 0 && l.hasTime(ctx) {
		return cmp.Or(l.makeUnheld(ctx, shared, keys[:half]), l.makeUnheld(ctx, shared, keys[half:]))
	}
	if mysql.IsLocked(err) && l.db.MariaDB {
		return nil
	}
	return sqlerr.Unwritten(err)
}

// Readers is one statement in a snapshot of its own.
func (d *leaseDriver) Readers(ctx context.Context, key string) ([]lease.Holder, error) {
	rows, err := read(ctx, d.conns, func(on mysqldb.DBTX) ([]mysqldb.ReadReadersRow, error) {
		return d.q.ReadReaders(ctx, on, []byte(key))
	})
	readers := make([]lease.Holder, len(rows))
	for i, r := range rows {
		readers[i] = lease.Holder{
			Member: id(r.MemberID.String), Label: string(r.Label), Token: r.Token, Dead: r.Ended == 1, Remaining: micros(r.RemainingUs),
		}
	}
	return readers, err
}

// Reap ends what dead members hold, and what has ended by itself.
func (d *leaseDriver) Reap(ctx context.Context, mode dblock.Mode, key string, gone []member.ID) error {
	if mode == dblock.ModePermit {
		return d.permits.reapPermits(ctx, key, gone)
	}
	handles, err := read(ctx, d.conns, func(on mysqldb.DBTX) ([][]byte, error) {
		return d.q.EndedReaders(ctx, on, []byte(key), nullable(gone))
	})
	if err != nil || len(handles) == 0 {
		return err
	}
	ended := make([]lease.ReleaseRequest, len(handles))
	for i, h := range handles {
		ended[i] = lease.ReleaseRequest{Key: key, Handle: id(string(h))}
	}
	_, err = d.readers.endShared(ctx, ended)
	return err
}

// freeShared releases those at the given places.
func (r *readerRows) freeShared(ctx context.Context, backs []lease.ReleaseRequest, at []int) (freed int64, err error) {
	return r.endShared(ctx, pick(backs, at))
}

// endShared deletes readers whose rows are not locked.
func (r *readerRows) endShared(ctx context.Context, backs []lease.ReleaseRequest) (ended int64, err error) {
	var args []any
	for _, b := range backs {
		args = append(args, []byte(b.Key), b.Handle[:])
	}
	ended, _, err = r.change(ctx, mysqldb.ReleaseShared, args)
	return ended, err
}

// findHeld is standing for readers.
func (r *readerRows) findHeld(
	ctx context.Context, backs []lease.ReleaseRequest, at []int, freed int64, results []lease.ReleaseResult,
) (left []int, err error) {
	tokens, err := r.readerTokens(ctx, pick(backs, at))
	for _, i := range at {
		if tokens[backs[i].Handle] != 0 {
			results[i] = lease.ReleaseResult{Held: true}
			left = append(left, i)
			continue
		}
		results[i] = lease.ReleaseResult{Freed: freed > 0 && backs[i].Token != 0}
	}
	if freed == int64(len(at)-len(left)) {
		for _, i := range at {
			results[i].Freed = !results[i].Held
		}
	}
	return left, err
}
