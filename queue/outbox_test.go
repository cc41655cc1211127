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
	locked := make(map[driver.ID]bool)
	for i := range c.jobs {
		j := &c.jobs[i]
		j.ID[0], j.claim, j.Keyed = byte(i), c, true
		if i < 3 {
			locked[j.ID] = true
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
