package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Run does what the flags say, which Check has passed. It prints what was measured on out, what
// happens meanwhile on log. Where a scenario fails, the rounds until then are printed, and the
// error is returned.
func Run(ctx context.Context, f Flags, all []Scenario, out, log io.Writer) error {
	return run(ctx, f, all, out, log, devdb.Start)
}

// startServer starts a server, as devdb.Start does.
type startServer func(context.Context, devdb.Kind, devdb.Options) (*devdb.Server, error)

func run(ctx context.Context, f Flags, all []Scenario, out, log io.Writer, start startServer) error {
	if f.List {
		return list(out, all)
	}
	chosen, err := f.choose(all)
	if err != nil {
		return err
	}
	if f.Threads > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(f.Threads))
	}
	r := &benchmark{f: f, out: out, log: log, start: start}
	err = r.engines(ctx, chosen)
	if f.JSON {
		err = errors.Join(err, r.printJSON())
	}
	if f.SVG != "" {
		err = errors.Join(err, r.writeSVG())
	}
	return err
}

// benchmark is one call of Run.
type benchmark struct {
	f        Flags
	out, log io.Writer
	start    startServer
	results  []result // of all engines, for JSON
	chart    chart    // of all engines, for SVG
}

// engines runs the scenarios on one kind of server after the other.
func (r *benchmark) engines(ctx context.Context, chosen []Scenario) error {
	kinds := r.f.kinds()
	named := len(kinds) > 0
	if !named {
		if kinds = devdb.Available(ctx); len(kinds) == 0 {
			return &devdb.NotFoundError{Kind: devdb.Postgres}
		}
	}
	if named {
		if err := r.refuse(chosen, kinds); err != nil {
			return err
		}
	}
	ran := false
	for _, kind := range kinds {
		here := slices.DeleteFunc(slices.Clone(chosen), func(s Scenario) bool { return !s.runsOn(kind) })
		for _, s := range without(chosen, kind) {
			r.logf("%s: %s runs on %s only: left out", kind, s.Name, joined(s.Engines))
		}
		if len(here) == 0 {
			continue
		}
		ran = true
		if err := r.engine(ctx, kind, here); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	if !ran {
		return fmt.Errorf("%s runs on %s only, which was not found", chosen[0].Name, joined(chosen[0].Engines))
	}
	return nil
}

// refuse returns an error for a scenario that was asked for by name if one of the requested engines
// lacks it. What a pattern found is only left out.
func (r *benchmark) refuse(chosen []Scenario, kinds []devdb.Kind) error {
	for _, kind := range kinds {
		for _, s := range without(chosen, kind) {
			if slices.Contains(r.f.Scenarios, s.Name) {
				return fmt.Errorf("%s does not run on %s, only on %s", s.Name, kind, joined(s.Engines))
			}
		}
	}
	return nil
}

func without(chosen []Scenario, kind devdb.Kind) []Scenario {
	return slices.DeleteFunc(slices.Clone(chosen), func(s Scenario) bool { return s.runsOn(kind) })
}

func (r *benchmark) logf(format string, args ...any) { _, _ = fmt.Fprintf(r.log, format+"\n", args...) }

// engine starts a server, runs all rounds on it, and reports what there is, however it ended.
func (r *benchmark) engine(ctx context.Context, kind devdb.Kind, chosen []Scenario) (err error) {
	b := &suite{benchmark: r, kind: kind}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx, chosen); err != nil {
		return err
	}
	err = b.rounds(ctx)
	if !r.f.JSON {
		b.report()
	}
	r.chart = append(r.chart, b.panel())
	for _, e := range b.entries {
		r.results = append(r.results, e.results...)
	}
	return err
}

// rounds runs the warm-up and then every round of every scenario. Every second round is run in the
// opposite order, so that no scenario always comes after the same one.
func (b *suite) rounds(ctx context.Context) error {
	if b.f.Warmup > 0 {
		for _, e := range b.entries {
			if _, err := b.once(ctx, e, time.Duration(b.f.Warmup)); err != nil {
				return fmt.Errorf("%s, warm-up: %w", e.Name, err)
			}
		}
	}
	for round := 1; round <= b.f.Rounds; round++ {
		order := slices.Clone(b.entries)
		if round%2 == 0 {
			slices.Reverse(order)
		}
		this := make(map[*entry]result)
		for _, e := range order {
			res, err := b.once(ctx, e, time.Duration(b.f.Time))
			if err != nil {
				b.keep(this)
				return fmt.Errorf("%s, round %d: %w", e.Name, round, err)
			}
			res.round = round
			this[e] = res
			b.logf("round %d of %d: %s: %.1f tps, %d failed", round, b.f.Rounds, e.Name, res.perSecond(), res.totalFailed())
		}
		b.keep(this)
	}
	return nil
}

// keep adds what was finished of a round. Ratios are only taken within one, so where its first
// scenario did not finish, or did nothing, there are none.
func (b *suite) keep(this map[*entry]result) {
	base := this[b.entries[0]]
	first := base.perSecond()
	for _, e := range b.entries {
		res, finished := this[e]
		if !finished {
			continue
		}
		if first > 0 {
			ratio := res.perSecond() / first
			res.ratio = &ratio
		}
		if base.Latency.P99 > 0 && res.Latency.P99 > 0 {
			ratio := res.Latency.P99 / base.Latency.P99
			res.p99Ratio = &ratio
		}
		e.results = append(e.results, res)
	}
}

// once runs one round of one scenario.
func (b *suite) once(ctx context.Context, e *entry, d time.Duration) (result, error) {
	n := e.next
	e.next++
	round, err := e.load.Round(ctx, n)
	if err != nil {
		return result{}, err
	}
	runtime.GC() // none of this round's time goes into the last one's garbage
	meter, err := b.meter(ctx, e)
	if err != nil {
		return result{}, err
	}
	sample, err := round.run(ctx, load{
		clients: e.env.Clients, time: d, rate: b.f.Rate, seed: b.f.Seed + uint64(n),
		watch: watcher(b.log, time.Duration(b.f.Progress), e.Name),
	})
	if err != nil {
		return result{}, err
	}
	cost, err := meter.stop(ctx, sample.OK)
	if err != nil {
		return result{}, err
	}
	if round.Run != nil && !round.Here { // the work was another program's
		cost = cost.ofTheServer()
	}
	if round.Check != nil {
		if err := round.Check(ctx, sample.OK); err != nil {
			return result{}, fmt.Errorf("the result is wrong: %w", err)
		}
	}
	return result{entry: e, suite: b, Sample: sample, cost: cost}, nil
}
