package inventory

import "testing"

// TestRecentForgetsWhatNobodyAsksFor: a bot that never rests is remembered, however many buyers
// come in between.
func TestRecentForgetsWhatNobodyAsksFor(t *testing.T) {
	t.Parallel()
	var r recent
	if _, found := r.get(recentSets); found {
		t.Error("found in nothing")
	}
	bot := uint64(recentSets)
	r.put(bot, 42)
	for i := range uint64(10 * recentSetSize) {
		r.put((i+2)*recentSets, int64(i)) // all of one set
		if v, found := r.get(bot); !found || v != 42 {
			t.Fatalf("the bot is forgotten after %d others: %d, %v", i, v, found)
		}
	}
	kept := 0
	for i := range uint64(10 * recentSetSize) {
		if v, found := r.get((i + 2) * recentSets); found {
			if kept++; v != int64(i) {
				t.Errorf("%d is remembered as %d", i, v)
			}
		}
	}
	if kept != recentSetSize-1 {
		t.Errorf("%d others are remembered, of the last %d", kept, recentSetSize-1)
	}
	r.put(bot, 43)
	if v, _ := r.get(bot); v != 43 {
		t.Errorf("%d in place of 42", v)
	}
}
