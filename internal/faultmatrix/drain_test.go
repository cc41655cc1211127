package faultmatrix

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
)

// TestFaultsThatTakeAJobsPlace: a job whose ready row is gone never ends. The checker notices it at
// once, and knows that its row is there.
func TestFaultsThatTakeAJobsPlace(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			e, c := clientBehindAnswers(t, kind)
			if _, err := c.queue.Enqueue(t.Context(), queue.Task{Kind: jobKind, Args: "j"}); err != nil {
				t.Fatal(err)
			}
			if err := e.exec(t.Context(), "DELETE FROM dblock_queue_ready"); err != nil {
				t.Fatal(err)
			}
			var found tables
			e.drain(t.Context(), &found)
			if len(found.lost) != 1 || !strings.Contains(found.lost[0], "1 of 1 jobs are neither ready") {
				t.Errorf("lost: %q", found.lost)
			}
			if err := e.readTables(t.Context(), &found); err != nil || !found.standing["j"] {
				t.Errorf("standing: %v, %v", found.standing, err)
			}
		})
	}
}

// TestSoonCountsSlowLooksInPart: on an overloaded machine more looks are taken.
func TestSoonCountsSlowLooksInPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for look, want := range map[time.Duration]int{0: 51, time.Second: 11} {
			looks := 0
			soon(t.Context(), time.Second, func() bool {
				looks++
				time.Sleep(look)
				return false
			})
			if looks != want {
				t.Errorf("%d looks of %v, not %d", looks, look, want)
			}
		}
	})
}
