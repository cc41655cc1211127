package mysqlqueue

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// key is a unique one, or that of a group.
type key struct{ queue, name string }

func (k key) compare(with key) int {
	return cmp.Or(strings.Compare(k.queue, with.queue), strings.Compare(k.name, with.name))
}

// args are the keys as arguments, and of each what else there is.
func args(keys []key, more ...func(key) any) (all []any) {
	for _, k := range keys {
		all = append(all, []byte(k.queue), []byte(k.name))
		for _, m := range more {
			all = append(all, m(k))
		}
	}
	return all
}

// insertKeyed enqueues jobs that have keys, and others: the unique keys first, then the jobs, and
// their groups in the end.
func insertKeyed(ctx context.Context, on mysqldb.DBTX, jobs []driver.Insert) ([]driver.Duplicate, error) {
	dups, err := takeUnique(ctx, on, jobs)
	if err != nil {
		return nil, err
	}
	out := make(map[driver.ID]bool, len(dups))
	for _, d := range dups {
		out[d.Job] = true
	}
	if len(dups) > 0 {
		jobs = slices.DeleteFunc(slices.Clone(jobs), func(j driver.Insert) bool { return out[j.ID] })
	}
	if len(jobs) == 0 {
		return dups, nil
	}
	grouped, err := insert(ctx, on, jobs, true)
	if err != nil {
		return nil, err
	}
	return dups, assignGroups(ctx, on, grouped, false)
}

// takeUnique takes the unique keys of jobs, and says which are others'. It locks these, too, so
// that none ends before it is named.
func takeUnique(ctx context.Context, on mysqldb.DBTX, jobs []driver.Insert) (dups []driver.Duplicate, err error) {
	wants := make(map[key]driver.ID)
	var keys []key
	for i := range jobs {
		if j := &jobs[i]; j.Unique != "" {
			k := key{j.Queue, j.Unique}
			keys = append(keys, k)
			wants[k] = j.ID
		}
	}
	slices.SortFunc(keys, key.compare)
	for some := range slices.Chunk(keys, maxReads) {
		take := args(some, func(k key) any {
			id := wants[k]
			return id[:]
		})
		if err := insertMany(ctx, on, mysqldb.TakeUnique, take); err != nil {
			return nil, err
		}
		holders, err := heldBy(ctx, on, mysqldb.LockedHolders, some)
		if err != nil {
			return nil, err
		}
		for _, k := range some {
			if h := holders[k]; h != wants[k] {
				dups = append(dups, driver.Duplicate{Job: wants[k], Holder: h})
			}
		}
	}
	return dups, nil
}

// Holders reads which jobs have unique keys.
func (d *database) Holders(ctx context.Context, jobs []driver.Insert) ([]driver.ID, error) {
	holders := make([]driver.ID, len(jobs))
	for from := 0; from < len(jobs); from += maxReads {
		some := jobs[from:min(from+maxReads, len(jobs))]
		keys := make([]key, len(some))
		for i := range some {
			keys[i] = key{some[i].Queue, some[i].Unique}
		}
		by, err := heldBy(ctx, d.on(d.db), mysqldb.KeyHolders, keys)
		if err != nil {
			return nil, sqlerr.Unwritten(err)
		}
		for i, k := range keys {
			holders[from+i] = by[k]
		}
	}
	return holders, nil
}

// heldBy reads which jobs have unique keys, by one of two statements.
func heldBy(ctx context.Context, on mysqldb.DBTX, query string, keys []key) (map[key]driver.ID, error) {
	by := make(map[key]driver.ID, len(keys))
	err := mysql.QueryEach(ctx, on, query, args(keys), func(row *sql.Rows) error {
		var queue, name, job []byte
		if err := row.Scan(&queue, &name, &job); err != nil {
			return err
		}
		by[key{string(queue), string(name)}] = idOf(job)
		return nil
	})
	return by, err
}

// noteKeys reads the keys of jobs that are ours, before these are deleted.
func (e *syncTx) noteKeys(x *driver.SyncBatch, positions []driver.Position, ours [][]byte) error {
	var jobs [][]byte
	for i := range positions {
		if p := &positions[i]; p.Keyed && has(ours, p.Job) {
			jobs = append(jobs, p.Job[:])
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	slices.SortFunc(jobs, bytes.Compare)
	keys, err := e.d.q.KeysOfJobs(e.ctx, e.on, jobs)
	if !x.LeavesGroups() {
		for i := range keys {
			keys[i].GroupKey.Valid = false
		}
	}
	e.freed = append(e.freed, keys...)
	return err
}

// lock locks the keys of jobs that have ended, or fails at once. A batch that waits for rows waits
// for a second.
func (e *syncTx) lock(x *driver.SyncBatch, _ *driver.SyncResult) error {
	keys, groups := e.freed.of()
	if x.WaitsForRows {
		return lockKeysOf(e.ctx, e.on, mysqldb.LockedHolders, mysqldb.LockGroups, keys, groups)
	}
	err := lockKeysNow(e.ctx, e.on, keys, groups)
	if e.names && len(e.freed) > 1 && mysql.IsLocked(err) {
		return e.locked(err, keys, groups)
	}
	return err
}

// locked names the jobs whose keys are locked.
func (e *syncTx) locked(err error, keys, groups []key) error {
	unlocked := make(map[key]bool)
	note := func(of map[key]bool) func(*sql.Rows) error {
		return func(row *sql.Rows) error {
			var queue, name []byte
			err := row.Scan(&queue, &name)
			of[key{string(queue), string(name)}] = true
			return err
		}
	}
	groupsUnlocked := make(map[key]bool)
	failed := mysql.QueryAll(e.ctx, e.on, mysqldb.UnlockedUnique, maxReads, args(keys), note(unlocked))
	if failed == nil {
		failed = mysql.QueryAll(e.ctx, e.on, mysqldb.UnlockedGroups, maxReads, args(groups), note(groupsUnlocked))
	}
	if failed != nil {
		return failed
	}
	named := &driver.LockedError{Err: err}
	ofGroups := make(map[key][]driver.ID)
	for _, o := range e.freed {
		group := key{string(o.Queue), o.GroupKey.String}
		switch {
		case o.GroupKey.Valid && !groupsUnlocked[group]:
			ofGroups[group] = append(ofGroups[group], idOf(o.JobID))
		case o.UniqueKey.Valid && !unlocked[key{string(o.Queue), o.UniqueKey.String}]:
			named.Jobs = append(named.Jobs, []driver.ID{idOf(o.JobID)})
		}
	}
	named.Jobs = slices.AppendSeq(named.Jobs, maps.Values(ofGroups))
	return named
}

// free releases the keys of jobs that have ended, which are locked: unique keys, and the places
// in groups to the jobs that wait for them.
func (e *syncTx) free(*driver.SyncBatch, *driver.SyncResult) error {
	unique, ended := make(map[key][]byte), make(map[key]int32)
	for _, o := range e.freed {
		if o.UniqueKey.Valid {
			unique[key{string(o.Queue), o.UniqueKey.String}] = o.JobID
		}
		if o.GroupKey.Valid {
			ended[key{string(o.Queue), o.GroupKey.String}]++
		}
	}
	keys, groups := e.freed.of()
	free := args(keys, func(k key) any { return unique[k] })
	if _, err := mysql.ExecAll(e.ctx, e.on, mysqldb.FreeUnique, maxReads, free); err != nil || len(groups) == 0 {
		return err
	}
	return admit(e.ctx, e.on, groups, ended)
}

// lockRows locks the rows of keys that are there, by a statement. One that does not wait fails at
// once if another transaction has one locked.
func lockRows(ctx context.Context, on mysqldb.DBTX, query string, keys []key) error {
	return mysql.QueryAll(ctx, on, query, maxReads, args(keys), func(*sql.Rows) error { return nil })
}

// freed are the keys of jobs that have ended.
type freed []mysqldb.KeysOfJobsRow

// of are the unique keys and the groups, in order.
func (f freed) of() (keys, groups []key) {
	for _, o := range f {
		if o.UniqueKey.Valid {
			keys = append(keys, key{string(o.Queue), o.UniqueKey.String})
		}
		if o.GroupKey.Valid {
			groups = append(groups, key{string(o.Queue), o.GroupKey.String})
		}
	}
	slices.SortFunc(keys, key.compare)
	slices.SortFunc(groups, key.compare)
	return keys, slices.Compact(groups)
}

// lockKeysNow locks unique keys and groups, or fails at once.
func lockKeysNow(ctx context.Context, on mysqldb.DBTX, keys, groups []key) error {
	return lockKeysOf(ctx, on, mysqldb.LockUniqueNoWait, mysqldb.LockGroupsNoWait, keys, groups)
}

// lockKeysOf locks unique keys and groups, by a statement for each.
func lockKeysOf(ctx context.Context, on mysqldb.DBTX, lockUnique, lockGroup string, keys, groups []key) error {
	if err := lockRows(ctx, on, lockUnique, keys); err != nil {
		return err
	}
	return lockRows(ctx, on, lockGroup, groups)
}
