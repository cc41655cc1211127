package queue

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// dueGroups is an engine of which groups have due jobs, and some of them are locked.
type dueGroups struct {
	lockedGroup
	due, locked []engine.Group
	waited      time.Duration // for those that are locked
	recent      int           // promotions of jobs without a group
}

func (*dueGroups) Exhausted() bool { return false }

func (e *dueGroups) Promote(_ context.Context, since time.Duration, _ int) (int, error) {
	if since != everDue {
		e.recent++
	}
	return 0, nil
}

func (e *dueGroups) DueGroups(context.Context, engine.Cursor) ([]engine.Group, engine.Cursor, error) {
	return slices.Clone(e.due), engine.Cursor{}, nil
}

func (e *dueGroups) PromoteGroups(_ context.Context, groups []engine.Group, _ engine.Cursor, _ int, wait time.Duration) (int, error) {
	if slices.ContainsFunc(groups, func(g engine.Group) bool { return slices.Contains(e.locked, g) }) {
		e.waited += wait
		time.Sleep(wait)
		return 0, errLocked
	}
	e.due = slices.DeleteFunc(e.due, func(g engine.Group) bool { return slices.Contains(groups, g) })
	return len(groups), nil
}

// TestLockedGroupsDelayNoOthers: beside a hundred locked groups a promotion waits for little in all, and goes on with other groups and with
// jobs without a group meanwhile. When the groups are free, it finds them.
func TestLockedGroupsDelayNoOthers(t *testing.T) {
	t.Parallel()
	e := &dueGroups{}
	for n := range 100 {
		e.locked = append(e.locked, engine.Group{Queue: "q", Key: fmt.Sprint("locked ", n)})
	}
	q := &Queue{engine: e, o: Options{Timeout: time.Minute}, patience: make(map[string]time.Duration), member: member.New(nil, member.Options{TTL: time.Minute})}
	for round := range 3 {
		others := []engine.Group{{Queue: "q", Key: fmt.Sprint("a ", round)}, {Queue: "q", Key: fmt.Sprint("z ", round)}}
		e.due = append(slices.Insert(slices.Clone(e.locked), 50, others[0]), others[1])
		e.waited, e.recent = 0, 0
		n, err := q.promoteGroups(t.Context())
		if err != nil || n != len(others) {
			t.Errorf("round %d: %d jobs are promoted, %v", round, n, err)
		}
		most := suspectsTime + groupWait
		if round == 0 {
			most = 1500 * time.Millisecond // it learns which groups are locked
		}
		if e.waited > most || round == 0 && e.recent == 0 {
			t.Errorf("round %d: waited for %v, and promoted jobs without a group %d times", round, e.waited, e.recent)
		}
	}
	e.locked = nil
	if n, err := q.promoteGroups(t.Context()); err != nil || n != 100 || len(e.due) > 0 {
		t.Errorf("%d groups that are free are promoted, %v; %d are left", n, err, len(e.due))
	}
}
