package bench

import (
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Sample is what was counted in one round.
type Sample struct {
	OK      int64 // units of work that were done
	Failed  map[string]int64
	Elapsed time.Duration // from the start to the last answer
	Latency Latency       // of the operations that did something
}

// Total is the number of failed operations, of all kinds.
func (s Sample) totalFailed() (n int64) {
	for _, k := range s.Failed {
		n += k
	}
	return n
}

func (s Sample) perSecond() float64 {
	if s.Elapsed <= 0 {
		return 0
	}
	return float64(s.OK) / s.Elapsed.Seconds()
}

// Latency is the distribution of the latencies of a round, in milliseconds.
type Latency struct {
	P50    float64 `json:"p50"`
	P95    float64 `json:"p95"`
	P99    float64 `json:"p99"`
	Mean   float64 `json:"mean"`
	Stddev float64 `json:"stddev"`
	Max    float64 `json:"max"`
}

// Histogram bounds: latencies are kept to three digits, from a tenth of a microsecond to ten
// minutes; what takes longer counts as ten minutes.
const (
	shortest = 100 * time.Nanosecond
	longest  = 10 * time.Minute
)

// recorder takes the results of many clients. Clients share a few shards: a histogram each would
// take more memory than what is measured.
type recorder struct{ shards [16]shard }

type shard struct {
	mu      sync.Mutex
	latency *hdrhistogram.Histogram
	sums
	failed map[string]int64
}

// sums are of the latencies of operations, in milliseconds: a histogram's own mean is rounded.
type sums struct {
	ops, ok      int64 // operations, and the units that they did
	sum, squares float64
}

func (s *sums) add(units int, ms float64) {
	s.ops++
	s.ok += int64(units)
	s.sum += ms
	s.squares += ms * ms
}

// since are what has come after an earlier moment.
func (s sums) since(before sums) sums {
	return sums{s.ops - before.ops, s.ok - before.ok, s.sum - before.sum, s.squares - before.squares}
}

func (s sums) meanAndStddev() (mean, stddev float64) {
	if s.ops == 0 {
		return 0, 0
	}
	n := float64(s.ops)
	mean = s.sum / n
	return mean, math.Sqrt(max(0, s.squares/n-mean*mean))
}

func newRecorder() *recorder {
	r := &recorder{}
	for i := range r.shards {
		r.shards[i].latency = hdrhistogram.New(shortest.Nanoseconds(), longest.Nanoseconds(), 3)
		r.shards[i].failed = make(map[string]int64)
	}
	return r
}

func (r *recorder) done(client, units int, took time.Duration) {
	s := &r.shards[client%len(r.shards)]
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.latency.RecordValue(min(max(took, shortest), longest).Nanoseconds()) // always within bounds
	s.add(units, milliseconds(took))
}

func (r *recorder) failed(client int, kind string, n int64) {
	s := &r.shards[client%len(r.shards)]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[kind] += n
}

// each calls fn with every shard, which stands still meanwhile.
func (r *recorder) each(fn func(*shard)) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		fn(s)
		s.mu.Unlock()
	}
}

// totals are the sums of all shards, and how many operations have failed.
func (r *recorder) totals() (all sums, failed int64) {
	r.each(func(s *shard) {
		all = sums{all.ops + s.ops, all.ok + s.ok, all.sum + s.sum, all.squares + s.squares}
		for _, n := range s.failed {
			failed += n
		}
	})
	return all, failed
}

// sample returns what was recorded until now, by clients that may go on.
func (r *recorder) sample(elapsed time.Duration) Sample {
	s := Sample{Failed: make(map[string]int64), Elapsed: elapsed}
	all := hdrhistogram.New(shortest.Nanoseconds(), longest.Nanoseconds(), 3)
	r.each(func(one *shard) {
		all.Merge(one.latency)
		for kind, n := range one.failed {
			s.Failed[kind] += n
		}
	})
	total, _ := r.totals()
	s.OK = total.ok
	if total.ops == 0 {
		return s
	}
	at := func(q float64) float64 { return milliseconds(time.Duration(all.ValueAtQuantile(q))) }
	s.Latency = Latency{P50: at(50), P95: at(95), P99: at(99), Max: milliseconds(time.Duration(all.Max()))}
	s.Latency.Mean, s.Latency.Stddev = total.meanAndStddev()
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
