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
	delayed  bool // it comes later, and only says what the limit is
}

// assignGroups lets jobs into their groups, in their order, or has them wait. The last job of a
// group says how many there may be at once. Jobs that are due were enqueued before others, and say
// so of new groups alone. In a group below its limit no job waits. So raiseLimits reads those that
// wait only if it raises the limit of a full group: in a caller's transaction of REPEATABLE READ
// that may lock out other groups.
func assignGroups(ctx context.Context, on mysqldb.DBTX, jobs []comer, due bool) error {
	if len(jobs) == 0 {
		return nil
	}
	most, comes, delayed := make(map[key]int32), make(map[key]bool), make(map[key]int32)
	for _, j := range jobs {
		most[j.group] = j.limit
		if j.delayed {
			delayed[j.group] = j.limit
		} else {
			comes[j.group] = true
		}
	}
	keys, err := changesOf(ctx, on, delayed)
	if err != nil {
		return err
	}
	open := args(sorted(comes), func(k key) any { return most[k] })
	if _, err := mysql.ExecAll(ctx, on, mysqldb.OpenGroups, maxReads, open); err != nil {
		return err
	}
	for k := range comes {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, key.compare)
	groups, err := lockGroups(ctx, on, slices.Compact(keys))
	if err != nil {
		return err
	}
	if !due {
		if err := raiseLimits(ctx, on, groups, most); err != nil {
			return err
		}
	}
	var ready, blocked []any
	for _, j := range jobs {
		if j.delayed {
			continue
		}
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
	return countGroups(ctx, on, sorted(groups), groups)
}

// changesOf returns the groups that have other limits. It takes no lock: a delayed job that changes
// no limit does not wait for its group.
func changesOf(ctx context.Context, on mysqldb.DBTX, most map[key]int32) (changed []key, err error) {
	if len(most) == 0 {
		return nil, nil
	}
	err = mysql.QueryAll(ctx, on, mysqldb.GroupLimits, maxReads, args(sorted(most)), func(row *sql.Rows) error {
		var g mysqldb.GroupLimitsRow
		err := row.Scan(&g.Queue, &g.GroupKey, &g.Most)
		if k := (key{string(g.Queue), string(g.GroupKey)}); g.Most != most[k] {
			changed = append(changed, k)
		}
		return err
	})
	return changed, err
}

// raiseLimits gives groups, which are locked, their new limits. If a group that was full is below
// its limit now, the first of those that wait are let in.
func raiseLimits(ctx context.Context, on mysqldb.DBTX, groups map[key]*mysqldb.DblockQueueKey, most map[key]int32) error {
	var heads []mysqldb.DblockQueueBlocked
	for _, k := range sorted(groups) {
		g := groups[k]
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
