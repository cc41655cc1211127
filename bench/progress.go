package bench

import (
	"fmt"
	"io"
	"sync"
	"time"
)

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
			last, before, failedBefore := start, sums{}, int64(0)
			for {
				select {
				case <-done:
					return
				case now := <-tick.C:
					total, failed := rec.totals()
					t := total.since(before)
					mean, stddev := t.meanAndStddev()
					_, _ = fmt.Fprintf(out, "progress: %s: %.1f s, %.1f tps, lat %.3f ms stddev %.3f, %d failed\n", what,
						now.Sub(start).Seconds(), float64(t.ok)/now.Sub(last).Seconds(), mean, stddev, failed-failedBefore)
					last, before, failedBefore = now, total, failed
				}
			}
		})
		return func() { close(done); printing.Wait() }
	}
}
