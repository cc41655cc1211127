package bench

import (
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

// totals are a recorder's sums at one moment.
type totals struct {
	ops, ok, failed int64
	sum, squares    float64
}

func (r *recorder) totals() (t totals) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		t.ops += s.ops
		t.ok += s.ok
		t.sum += s.sum
		t.squares += s.squares
		for _, n := range s.failed {
			t.failed += n
		}
		s.mu.Unlock()
	}
	return t
}

// watcher prints a line every so often while a round runs, in pgbench's words.
func watcher(out io.Writer, every time.Duration, what string) func(*recorder) (stop func()) {
	return func(rec *recorder) func() {
		if every <= 0 {
			return func() {}
		}
		done := make(chan struct{})
		var printing sync.WaitGroup
		printing.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			start := time.Now()
			last, before := start, totals{}
			for {
				select {
				case <-done:
					return
				case now := <-tick.C:
					t := rec.totals()
					_, _ = fmt.Fprintf(out, "progress: %s: %.1f s, %s\n", what, now.Sub(start).Seconds(), t.since(before, now.Sub(last)))
					last, before = now, t
				}
			}
		})
		return func() { close(done); printing.Wait() }
	}
}

func (t totals) since(before totals, d time.Duration) string {
	ops := float64(t.ops - before.ops)
	mean, stddev := 0.0, 0.0
	if ops > 0 {
		mean = (t.sum - before.sum) / ops
		stddev = math.Sqrt(max(0, (t.squares-before.squares)/ops-mean*mean))
	}
	return fmt.Sprintf("%.1f tps, lat %.3f ms stddev %.3f, %d failed",
		float64(t.ok-before.ok)/d.Seconds(), mean, stddev, t.failed-before.failed)
}
