package bench

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func (b *suite) printf(format string, args ...any) { _, _ = fmt.Fprintf(b.out, format, args...) }

// header says what everything below was measured on, and how.
func (b *suite) header() {
	b.printf("\n%s %s from %s\n", b.kind, b.server.Version, b.server.Source)
	durable, why := b.settings.durable()
	word := "every commit durable"
	if !durable {
		word = "NOT durable, " + why
	}
	b.printf("%s: %s\n", word, b.settings)
	b.printf("%s/%s, %s, number of threads: %d of %d cores\n", runtime.GOOS, runtime.GOARCH, runtime.Version(),
		runtime.GOMAXPROCS(0), runtime.NumCPU())
	loop := "closed loop"
	if b.f.Rate > 0 {
		loop = fmt.Sprintf("open loop, rate %g a second, latencies from the moment an operation was due", b.f.Rate)
	}
	b.printf("%s, %d rounds of %v after a warm-up of %v, interleaved; seed %d\n", loop, b.f.Rounds,
		time.Duration(b.f.Time), time.Duration(b.f.Warmup), b.f.Seed)
}

// report prints what was finished: a block a scenario in pgbench's words, then one table.
func (b *suite) report() {
	var done []*entry
	for _, e := range b.entries {
		if len(e.results) > 0 {
			done = append(done, e)
		}
	}
	if len(done) == 0 {
		b.printf("\n%s: no round was finished\n", b.kind)
		return
	}
	for _, e := range done {
		b.block(e)
	}
	b.table(done)
}

func (b *suite) block(e *entry) {
	s := summarize(e.results)
	b.printf("\nscenario: %s (%s)\n", e.Name, e.About)
	if engine, server := e.results[0].engine(); engine != string(b.kind) || server != b.server.Version {
		b.printf("server: %s %s\n", engine, server)
	}
	b.printf("number of clients: %d\n", e.env.Clients)
	b.printf("number of connections: %d", e.env.Conns)
	if len(e.trials) > 0 {
		b.printf(" (the best of %s)", e.tried())
	}
	b.printf("\nduration: %v, %d rounds\n", time.Duration(b.f.Time), len(e.results))
	b.printf("number of transactions actually processed: %d\n", s.ok)
	b.printf("number of failed transactions: %d (%.3f%%)%s\n", s.failed, s.failedPercent(), s.byKind())
	b.printf("latency average = %.3f ms\nlatency stddev = %.3f ms\n", s.latency.Mean, s.latency.Stddev)
	b.printf("latency p50 = %.3f ms, p95 = %.3f ms, p99 = %.3f ms, max = %.3f ms\n",
		s.latency.P50, s.latency.P95, s.latency.P99, s.latency.Max)
	b.printf("tps = %.6f (median of the rounds; %.1f to %.1f)\n", s.rate.median, s.rate.least, s.rate.most)
	if e != b.entries[0] {
		b.printf("ratio to %s = %.3f (median of the rounds; %.3f to %.3f)\n", b.entries[0].Name,
			s.ratio.median, s.ratio.least, s.ratio.most)
		b.printf("ratio of latency p99 = %.3f (median of the rounds; %.3f to %.3f)\n", s.p99Ratio.median, s.p99Ratio.least, s.p99Ratio.most)
	}
	b.printf("per transaction: %.2f statements, %.0f bytes of log, %.1f allocations of %.0f bytes\n",
		s.cost.Statements, s.cost.LogBytes, s.cost.Allocs, s.cost.AllocBytes)
}

func (b *suite) table(done []*entry) {
	b.printf("\n%s %s, %d clients\n\n", b.kind, b.server.Version, b.f.Clients)
	t := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "scenario\tconns\ttps\tleast\tmost\tratio\tleast\tmost\tfailed\tp50 ms\tp99 ms\tstatements\tlog B\tallocs\t")
	for _, e := range done {
		s := summarize(e.results)
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.1f%%\t%s\t%s\t%s\t%s\t%s\t\n",
			e.Name, e.env.Conns, s.rate.median, s.rate.least, s.rate.most, s.ratio.median, s.ratio.least, s.ratio.most,
			s.failedPercent(), known(2, s.latency.P50), known(2, s.latency.P99), known(2, s.cost.Statements),
			known(0, s.cost.LogBytes), known(0, s.cost.Allocs))
	}
	_ = t.Flush()
}

// known is a number with some decimals, or a dash for 0: what is not known is 0.
func known(decimals int, x float64) string {
	if x == 0 {
		return "-"
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

// summary is all rounds of a scenario.
type summary struct {
	ok, failed  int64
	kinds       map[string]int64
	rate, ratio spread
	p99Ratio    spread
	latency     Latency // medians of the rounds, and the maximum of all
	cost        cost    // medians
}

// spread is what a number was over the rounds.
type spread struct{ median, least, most float64 }

func spreadOf(rounds []result, of func(result) float64) spread {
	var xs []float64
	for _, r := range rounds {
		xs = append(xs, of(r))
	}
	return spreadIn(xs)
}

// ratios are those of the rounds that have one.
func ratios(rounds []result, of func(result) *float64) (xs []float64) {
	for _, r := range rounds {
		if x := of(r); x != nil {
			xs = append(xs, *x)
		}
	}
	return xs
}

func spreadIn(xs []float64) spread {
	if len(xs) == 0 {
		return spread{}
	}
	slices.Sort(xs)
	mid := xs[len(xs)/2]
	if len(xs)%2 == 0 {
		mid = (mid + xs[len(xs)/2-1]) / 2
	}
	return spread{mid, xs[0], xs[len(xs)-1]}
}

func summarize(rounds []result) summary {
	s := summary{kinds: make(map[string]int64)}
	for _, r := range rounds {
		s.ok += r.OK
		for kind, n := range r.Failed {
			s.kinds[kind] += n
			s.failed += n
		}
	}
	median := func(of func(result) float64) float64 { return spreadOf(rounds, of).median }
	s.rate = spreadOf(rounds, func(r result) float64 { return r.perSecond() })
	s.ratio = spreadIn(ratios(rounds, func(r result) *float64 { return r.ratio }))
	s.p99Ratio = spreadIn(ratios(rounds, func(r result) *float64 { return r.p99Ratio }))
	s.latency = Latency{
		P50:    median(func(r result) float64 { return r.Latency.P50 }),
		P95:    median(func(r result) float64 { return r.Latency.P95 }),
		P99:    median(func(r result) float64 { return r.Latency.P99 }),
		Mean:   median(func(r result) float64 { return r.Latency.Mean }),
		Stddev: median(func(r result) float64 { return r.Latency.Stddev }),
		Max:    spreadOf(rounds, func(r result) float64 { return r.Latency.Max }).most,
	}
	s.cost = cost{
		Statements: median(func(r result) float64 { return r.cost.Statements }),
		LogBytes:   median(func(r result) float64 { return r.cost.LogBytes }),
		Allocs:     median(func(r result) float64 { return r.cost.Allocs }),
		AllocBytes: median(func(r result) float64 { return r.cost.AllocBytes }),
	}
	return s
}

func (s summary) failedPercent() float64 {
	if s.ok+s.failed == 0 {
		return 0
	}
	return 100 * float64(s.failed) / float64(s.ok+s.failed)
}

func (s summary) byKind() string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(s.kinds)) {
		all = append(all, fmt.Sprintf("%s %d", kind, s.kinds[kind]))
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, ", ")
}

// String lists the settings for a header.
func (s settings) String() string {
	var all []string
	for _, one := range s.List {
		all = append(all, one.Name+"="+one.Value)
	}
	return strings.Join(all, " ")
}
