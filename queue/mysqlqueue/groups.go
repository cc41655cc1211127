package mysqlqueue

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
)

// comer is a job that comes to its group.
type comer struct {
	group    key
	job      []byte
	priority int16
	limit    int32
}

// assignGroups lets jobs into their groups, in their order, or has them wait. In a group below its
// limit no job waits. So place reads those that wait only if it raises the limit of a full group:
// in a caller's transaction of REPEATABLE READ that may lock out other groups.
func assignGroups(ctx context.Context, on mysqldb.DBTX, jobs []comer) error {
	if len(jobs) == 0 {
		return nil
	}
	most := make(map[key]int32)
	for _, j := range jobs {
		most[j.group] = j.limit // the last one's
	}
	keys := sorted(most)
	if _, err := mysql.ExecAll(ctx, on, mysqldb.OpenGroups, maxReads, args(keys, func(k key) any { return most[k] })); err != nil {
		return err
	}
	groups, err := lockGroups(ctx, on, keys)
	if err != nil {
		return err
	}
	if err := raiseLimits(ctx, on, keys, groups, most); err != nil {
		return err
	}
	var ready, blocked []any
	for _, j := range jobs {
		g := groups[j.group]
		if g == nil {
			return fmt.Errorf("mysqlqueue: group %q of queue %q was written and is not found", j.group.name, j.group.queue)
		}
		if g.Taken < g.Most {
			g.Taken++
			ready = append(ready, g.Queue, j.priority, j.job)
		} else {
			blocked = append(blocked, g.Queue, g.GroupKey, g.NextSeq, j.job, j.priority)
		}
		g.NextSeq++
	}
	if err := insertMany(ctx, on, mysqldb.ReadyJobs, ready); err != nil {
		return err
	}
	if err := insertMany(ctx, on, mysqldb.BlockJobs, blocked); err != nil {
		return err
	}
	return countGroups(ctx, on, keys, groups)
}

// raiseLimits gives groups, which are locked, their new limits. If a group that was full is below
// its limit now, the first of those that wait are let in.
func raiseLimits(ctx context.Context, on mysqldb.DBTX, keys []key, groups map[key]*mysqldb.DblockQueueKey, most map[key]int32) error {
	var heads []mysqldb.DblockQueueBlocked
	for _, k := range keys {
		g := groups[k]
		if g == nil {
			continue
		}
		full := g.Taken >= g.Most
		if g.Most = most[k]; !full || g.Taken >= g.Most {
			continue
		}
		first, err := new(mysqldb.Queries).LockBlocked(ctx, on, []byte(k.queue), []byte(k.name), g.Most-g.Taken)
		if err != nil {
			return err
		}
		heads = append(heads, first...)
	}
	_, err := letIn(ctx, on, heads, groups)
	return err
}

// letIn has jobs that wait be ready, and counts them. It returns to which groups some came.
func letIn(ctx context.Context, on mysqldb.DBTX, heads []mysqldb.DblockQueueBlocked, groups map[key]*mysqldb.DblockQueueKey) (came map[key]bool, err error) {
	came = make(map[key]bool)
	var gone, ready []any
	for _, h := range heads {
		k := key{string(h.Queue), string(h.GroupKey)}
		if groups[k] == nil {
			return nil, fmt.Errorf("mysqlqueue: group %q of queue %q was found and not asked for", k.name, k.queue)
		}
		groups[k].Taken++
		came[k] = true
		gone = append(gone, h.Queue, h.GroupKey, h.Seq)
		ready = append(ready, h.Queue, h.Priority, h.JobID)
	}
	if _, err := mysql.ExecAll(ctx, on, mysqldb.Unblock, maxReads, gone); err != nil {
		return nil, err
	}
	return came, insertMany(ctx, on, mysqldb.ReadyJobs, ready)
}

// admit takes jobs that have ended out of their groups, and makes the first of those that wait
// ready, within the limit. An empty group is deleted.
func admit(ctx context.Context, on mysqldb.DBTX, keys []key, ended map[key]int32) error {
	slices.SortFunc(keys, key.compare)
	groups, err := lockGroups(ctx, on, keys)
	if err != nil {
		return err
	}
	var open, over []key // below the limit; empty ones
	for _, k := range keys {
		if g := groups[k]; g != nil {
			g.Taken -= ended[k]
			open = append(open, k)
			if g.Taken < 0 { // the count was wrong: the server refuses it
				return countGroups(ctx, on, []key{k}, groups)
			}
		}
	}
	for len(open) > 0 {
		heads, err := blockedHeads(ctx, on, open, groups, ended)
		if err != nil {
			return err
		}
		came, err := letIn(ctx, on, heads, groups)
		if err != nil {
			return err
		}
		var still []key
		for _, k := range open {
			switch g := groups[k]; {
			case !came[k] && g.Taken <= 0:
				over = append(over, k)
			case came[k] && g.Taken < g.Most:
				still = append(still, k)
				ended[k] *= 2 // more may wait, if the limit was raised by hand or jobs in between are gone
			}
		}
		open = still
	}
	stay := slices.DeleteFunc(sorted(groups), func(k key) bool { return slices.Contains(over, k) })
	if err := countGroups(ctx, on, stay, groups); err != nil {
		return err
	}
	_, err = mysql.ExecAll(ctx, on, mysqldb.EndGroups, maxReads, args(over))
	return err
}

// lockGroups locks groups in order, and reads them.
func lockGroups(ctx context.Context, on mysqldb.DBTX, keys []key) (map[key]*mysqldb.DblockQueueKey, error) {
	groups := make(map[key]*mysqldb.DblockQueueKey, len(keys))
	err := mysql.QueryAll(ctx, on, mysqldb.LockGroups, maxReads, args(keys), func(row *sql.Rows) error {
		g := new(mysqldb.DblockQueueKey)
		err := row.Scan(&g.Queue, &g.GroupKey, &g.Most, &g.Taken, &g.NextSeq)
		groups[key{string(g.Queue), string(g.GroupKey)}] = g
		return err
	})
	return groups, err
}

// blockedHeads reads the jobs that come next in groups below their limits. A group in which jobs
// wait was full until some of its jobs ended, so as many may come in. If it can take more, the
// caller asks again for twice as many.
func blockedHeads(
	ctx context.Context, on mysqldb.DBTX, keys []key, groups map[key]*mysqldb.DblockQueueKey, ended map[key]int32,
) (heads []mysqldb.DblockQueueBlocked, err error) {
	var all []any
	for _, k := range keys {
		for behind := range int64(min(groups[k].Most-groups[k].Taken, ended[k])) {
			all = append(all, []byte(k.queue), []byte(k.name), behind)
		}
	}
	err = mysql.QueryAll(ctx, on, mysqldb.BlockedHeads, maxReads, all, func(row *sql.Rows) error {
		var b mysqldb.DblockQueueBlocked
		err := row.Scan(&b.Queue, &b.GroupKey, &b.Seq, &b.JobID, &b.Priority)
		heads = append(heads, b)
		return err
	})
	return heads, err
}

// countGroups writes down what has become of groups.
func countGroups(ctx context.Context, on mysqldb.DBTX, keys []key, groups map[key]*mysqldb.DblockQueueKey) error {
	all := args(keys,
		func(k key) any { return groups[k].Most }, func(k key) any { return groups[k].Taken }, func(k key) any { return groups[k].NextSeq })
	_, err := mysql.ExecAll(ctx, on, mysqldb.CountGroups, maxReads, all)
	return err
}

// sorted are the keys of a map, in order.
func sorted[V any](of map[key]V) []key {
	keys := make([]key, 0, len(of))
	for k := range of {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, key.compare)
	return keys
}
