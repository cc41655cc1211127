package lease

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/member"
)

// TestTheFirstTurnsAreWatched: of a crowd that waits for a key the server looks for those with the
// lowest tickets, and goes on to the next ones as they are served. Keys that were waited for longer
// come first, and calls of the others poll.
func TestTheFirstTurnsAreWatched(t *testing.T) {
	t.Parallel()
	w := &Waits{calls: make(chan struct{}, 1), clock: clock.Real{}}
	now := time.Now()
	turns := make(map[string][]*fairWaiter)
	await := func(key string, ticket int64) {
		of := &fairWaiter{reply: reply{request: AcquireRequest{Key: key, Handle: member.NewID()}, sent: now.Add(time.Duration(len(turns[key])))}, ticket: ticket, woken: make(chan struct{}, 1)}
		turns[key] = append(turns[key], of)
		w.await(of)
	}
	const crowd = 300
	await("crowd", 0)
	for _, i := range rand.Perm(crowd) {
		await("crowd", int64(i+1))
	}
	now = now.Add(time.Second)
	await("late", 1)
	slices.SortFunc(turns["crowd"], byTicket)
	for served := 0; served < crowd-maxFairOfKey; served++ {
		of := turns["crowd"]
		keys, handles := w.fairToWatch(maxFairOfKey)
		want := []Handle{of[0].request.Handle, of[1].request.Handle, of[2].request.Handle, of[3].request.Handle}
		if !slices.Equal(keys, []string{"crowd"}) || !slices.Equal(handles, want) {
			t.Fatalf("after %d were served the server looks for %v and %v", served, keys, handles)
		}
		if late := turns["late"][0]; !w.isNotifiedOfTicket(of[len(of)-1]) || w.isNotifiedOfTicket(late) {
			t.Fatal("the last of the crowd polls, or the other key's call does not")
		}
		w.removeFair(of[0])
		turns["crowd"] = of[1:]
	}
	if keys, handles := w.fairToWatch(maxWatched); len(keys) != 2 || len(handles) != maxFairOfKey+1 {
		t.Errorf("with room for all it looks for %v and %v", keys, handles)
	}
}
