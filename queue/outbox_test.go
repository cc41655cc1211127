package queue

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

// TestEndsOfLockedKeysWaitApart: of a batch whose driver names the jobs with locked keys, only
// their ends go apart. Several wait for their rows at once. One that has waited without success
// lets the others go first.
func TestEndsOfLockedKeysWaitApart(t *testing.T) {
	t.Parallel()
	const waits = 2
	o := outbox{flushAt: 1, rowWaits: waits, claims: make(map[*claim]struct{})}
	c := &claim{owner: &incarnation{}, jobs: make([]claimedJob, 6)}
	c.open = len(c.jobs)
	o.claimed(c)
	var locked [][]driver.ID
	for i := range c.jobs {
		j := &c.jobs[i]
		j.ID[0], j.claim, j.Keyed = byte(i), c, true
		if i < 3 {
			locked = append(locked, []driver.ID{j.ID})
		}
		o.add(end{claimedJob: j, outcome: outcomeCompleted})
	}
	send := func(b *syncBatch) *syncBatch {
		t.Helper()
		if b == nil {
			t.Fatal("there is no batch")
		}
		o.sends(b)
		return b
	}
	all := send(o.compose())
	o.landed(all)
	if others := o.setLockedApart(all, locked); len(others) != 3 {
		t.Errorf("%d ends go with others, want 3", len(others))
	}
	now := time.Now().Add(longestRest)
	if b, _ := o.composeApart(now); b != nil {
		t.Error("an end whose row is locked was sent again without a wait for it")
	}
	var first []*syncBatch
	for range waits {
		b, _ := o.composeWaiting(now)
		first = append(first, send(b))
	}
	if b, _ := o.composeWaiting(now); b != nil {
		t.Errorf("more than %d batches wait", waits)
	}
	for _, b := range first {
		o.landed(b)
		o.setApart(b, true)
	}
	b, _ := o.composeWaiting(now)
	send(b)
	for _, earlier := range first {
		if b.ends[0].ID == earlier.ends[0].ID {
			t.Error("an end that has waited without success waits again before another one")
		}
	}
	if b, _ := o.composeWaiting(now); b != nil {
		t.Error("an end waits again at once")
	}
	if b, _ := o.composeApart(now.Add(longestRest)); b == nil {
		t.Error("an end that has waited without success is not sent without a wait")
	}
}

// TestEndsOfALockedGroupGoTogether: the driver names the jobs of two locked groups. Those of each
// group wait for its row in one batch. If that was without success, they are sent again together.
// If the server refuses them for another reason, they are halved.
func TestEndsOfALockedGroupGoTogether(t *testing.T) {
	t.Parallel()
	const members = 4
	o := outbox{flushAt: 1, rowWaits: 8, claims: make(map[*claim]struct{})}
	c := &claim{owner: &incarnation{}, jobs: make([]claimedJob, 2*members)}
	c.open = len(c.jobs)
	o.claimed(c)
	groups := make([][]driver.ID, 2)
	for i := range c.jobs {
		j := &c.jobs[i]
		j.ID[0], j.claim, j.Keyed = byte(i), c, true
		groups[i%2] = append(groups[i%2], j.ID)
		o.add(end{claimedJob: j, outcome: outcomeCompleted})
	}
	all := o.compose()
	o.sends(all)
	o.landed(all)
	if others := o.setLockedApart(all, groups); len(others) != 0 {
		t.Fatalf("%d ends go with others", len(others))
	}
	now := time.Now().Add(longestRest)
	group := func(b *syncBatch, size int) {
		t.Helper()
		if b == nil || len(b.ends) != size {
			t.Fatalf("%+v is no batch of %d", b, size)
		}
		for _, e := range b.ends {
			if e.ID[0]%2 != b.ends[0].ID[0]%2 {
				t.Errorf("ends of both groups are in one batch")
			}
		}
		o.sends(b)
	}
	for range 2 {
		b, _ := o.composeWaiting(now)
		group(b, members)
		o.landed(b)
		o.setApart(b, true)
	}
	if b, _ := o.composeWaiting(now); b != nil {
		t.Error("a group waits again at once")
	}
	for _, size := range []int{4, 4, 2, 2, 2, 2, 1} {
		b, _ := o.composeApart(now.Add(longestRest))
		group(b, size)
		o.landed(b)
		o.setApart(b, false)
	}
}
