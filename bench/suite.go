package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

// suite is one server with all scenarios that run on it.
type suite struct {
	*benchmark
	kind     devdb.Kind
	server   *devdb.Server
	probe    probe
	settings settings
	entries  []*entry
	undo     []func() error // the last first
}

// entry is one scenario of a suite.
type entry struct {
	Scenario
	env     *Env
	load    Workload
	next    int // number of its next round; the same never comes twice
	trials  []trial
	results []result
}

// trial is a number of connections that was tried before the first round.
type trial struct {
	conns int
	rate  float64
}

func (b *suite) open(ctx context.Context, chosen []Scenario) (err error) {
	b.server, err = b.start(ctx, b.kind, devdb.Options{Durable: true, Logf: b.logf})
	if err != nil {
		return err
	}
	b.undo = append(b.undo, b.server.Close)
	if b.probe, err = newProbe(ctx, b.kind, b.server.AdminDSN()); err != nil {
		return err
	}
	b.undo = append(b.undo, b.probe.close)
	if b.settings, err = b.probe.settings(ctx); err != nil {
		return err
	}
	if err := b.enoughConnections(ctx, chosen); err != nil {
		return err
	}
	if !b.f.JSON {
		b.header()
	}
	for _, s := range chosen {
		if err := b.add(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// connsOf lists the numbers of connections that a scenario may run with.
func (b *suite) connsOf(s Scenario) []int {
	switch {
	case b.f.Conns > 0:
		return []int{b.f.Conns}
	case len(s.Conns) > 0:
		return s.Conns
	default:
		return []int{min(s.clients(b.f.Clients), 64)}
	}
}

// enoughConnections refuses what the server would, before anything runs: every scenario keeps its
// connections to the end.
func (b *suite) enoughConnections(ctx context.Context, chosen []Scenario) error {
	free, err := b.probe.freeConnections(ctx)
	if err != nil {
		return err
	}
	need := 0
	for _, s := range chosen {
		need += slices.Max(b.connsOf(s))
	}
	if need > free {
		return fmt.Errorf("%d scenarios with %d connections in all: the server takes %d more; lower --conns, or raise its max_connections",
			len(chosen), need, free)
	}
	return nil
}

// add opens a scenario on a database of its own, with the number of connections that is best for
// it.
func (b *suite) add(ctx context.Context, s Scenario) error {
	dsn, err := b.database(ctx)
	if err != nil {
		return err
	}
	e := &entry{Scenario: s, env: &Env{
		Kind: b.kind, Server: b.server, DSN: dsn, Clients: s.clients(b.f.Clients), Seed: b.f.Seed, Dir: b.dir(),
		Jobs: b.f.Jobs, Rate: b.f.Rate,
	}}
	choices := b.connsOf(s)
	best := choices[0]
	if len(choices) > 1 {
		if best, err = b.try(ctx, e, choices); err != nil {
			return err
		}
	}
	if err := e.open(ctx, best); err != nil {
		return err
	}
	b.undo = append(b.undo, func() error { return e.load.Close() })
	b.entries = append(b.entries, e)
	return nil
}

func (e *entry) open(ctx context.Context, conns int) (err error) {
	e.env.Conns = conns
	e.load, err = e.Open(ctx, e.env)
	return err
}

// longestTrial is how long one number of connections is tried.
const longestTrial = 2 * time.Second

// try finds the number of connections that a scenario does most with.
func (b *suite) try(ctx context.Context, e *entry, choices []int) (best int, err error) {
	for _, conns := range choices {
		if err := e.open(ctx, conns); err != nil {
			return 0, err
		}
		res, err := b.once(ctx, e, min(longestTrial, time.Duration(b.f.Time)))
		if err := errors.Join(err, e.load.Close()); err != nil {
			return 0, fmt.Errorf("with %d connections: %w", conns, err)
		}
		e.trials = append(e.trials, trial{conns, res.perSecond()})
	}
	top := slices.MaxFunc(e.trials, func(x, y trial) int {
		switch {
		case x.rate < y.rate:
			return -1
		case x.rate > y.rate:
			return 1
		}
		return 0
	})
	b.logf("%s: %s", e.Name, e.tried())
	return top.conns, nil
}

// tried says which numbers of connections were tried.
func (e *entry) tried() string {
	var all []string
	for _, t := range e.trials {
		all = append(all, fmt.Sprintf("%d: %.1f tps", t.conns, t.rate))
	}
	return strings.Join(all, ", ")
}

func (b *suite) close() error {
	var errs []error
	for _, undo := range slices.Backward(b.undo) {
		errs = append(errs, undo())
	}
	b.undo = nil
	return errors.Join(errs...)
}
