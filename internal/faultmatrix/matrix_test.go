package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// Kind is a product.
type Kind = devdb.Kind

// parallel is how many runs share a server. Each has three processes, and more runs at once would
// only make each of them late.
const parallel = 2

// Options of Measure.
type Options struct {
	Kinds []Kind
	Runs  int           // of each fault
	Only  string        // a regular expression of the faults; empty: all
	For   time.Duration // begin no second run of a fault after so long; 0: no bound
	Logf  func(format string, args ...any)
}

// Cell is what the runs of one fault on one engine have shown.
type Cell struct {
	Fault      string        `json:"fault"`
	Engine     Kind          `json:"engine"`
	Runs       int           `json:"runs"`
	Strikes    int           `json:"strikes"`
	Ops        int           `json:"ops"`
	Violations [promises]int `json:"violations"`
	Control    [promises]int `json:"control"`
	Notes      []string      `json:"notes,omitempty"` // the first violations
}

// Matrix is the result of Measure.
type Matrix struct {
	Versions map[Kind]string `json:"versions"`
	Cells    []*Cell         `json:"cells"`

	mu sync.Mutex
}

// Measure runs the workload under each fault, so many times on each engine. Runs that need no
// server of their own share one.
func Measure(ctx context.Context, o Options) (*Matrix, error) {
	only, err := regexp.Compile(o.Only)
	if err != nil {
		return nil, err
	}
	m := &Matrix{Versions: make(map[Kind]string)}
	var errs []error
	for _, kind := range o.Kinds {
		if err := m.measure(ctx, kind, m.lanes(kind, only, o.Runs), o); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", kind, err))
		}
	}
	return m, errors.Join(errs...)
}

// Add adds the runs of another matrix.
func (m *Matrix) Add(other *Matrix) {
	for kind, version := range other.Versions {
		m.Versions[kind] = version
	}
	for _, from := range other.Cells {
		c := m.cell(from.Fault, from.Engine)
		c.Runs, c.Strikes, c.Ops = c.Runs+from.Runs, c.Strikes+from.Strikes, c.Ops+from.Ops
		for p := range c.Violations {
			c.Violations[p] += from.Violations[p]
			c.Control[p] += from.Control[p]
		}
		c.Notes = append(c.Notes, from.Notes...)
	}
}

// trial is one run that is to be.
type trial struct {
	fault Fault
	cell  *Cell
}

// lane is runs that take their servers from one place.
type lane struct {
	trials  []trial
	workers int
	o       devdb.Options
	each    bool // run has new servers; false: all use one
}

// lanes are the runs on an engine: those that share a server, those that break one, and those that
// need a replica.
func (m *Matrix) lanes(kind Kind, only *regexp.Regexp, runs int) []lane {
	shared := lane{workers: parallel}
	own := lane{workers: 1, o: devdb.Options{Durable: true}}
	pairs := lane{workers: 1, o: devdb.Options{Replicated: true}, each: true}
	for range runs {
		for _, f := range Faults() {
			if !only.MatchString(f.Name) || !f.has(kind) {
				continue
			}
			to := &shared
			if f.Failover {
				to = &pairs
			} else if f.Own {
				to = &own
			}
			to.trials = append(to.trials, trial{f, m.cell(f.Name, kind)})
		}
	}
	return []lane{shared, own, pairs}
}

func (m *Matrix) measure(ctx context.Context, kind Kind, lanes []lane, o Options) error {
	errs := make([]error, len(lanes))
	var all sync.WaitGroup
	for i, l := range lanes {
		if len(l.trials) == 0 {
			continue
		}
		all.Go(func() {
			start := func() (servers, error) { return startServers(ctx, kind, l.o) }
			if !l.each {
				one, err := start()
				if err != nil {
					errs[i] = err
					return
				}
				defer func() { errs[i] = errors.Join(errs[i], one.close()) }()
				start = func() (servers, error) { return one, nil }
			}
			errs[i] = m.runAll(ctx, kind, start, l, o)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// servers are what a run uses: a server, and its replica if the fault needs one.
type servers struct{ primary, replica *devdb.Server }

func startServers(ctx context.Context, kind Kind, o devdb.Options) (s servers, err error) {
	if s.primary, err = devdb.Start(ctx, kind, o); err != nil || !o.Replicated {
		return s, err
	}
	if s.replica, err = testdb.StartReplica(ctx, s.primary); err != nil {
		return s, errors.Join(err, s.primary.Close())
	}
	return s, nil
}

func (s servers) close() error {
	if s.replica != nil {
		return errors.Join(s.replica.Close(), s.primary.Close())
	}
	return s.primary.Close()
}

func (m *Matrix) cell(fault string, kind Kind) *Cell {
	at := slices.IndexFunc(m.Cells, func(c *Cell) bool { return c.Fault == fault && c.Engine == kind })
	if at >= 0 {
		return m.Cells[at]
	}
	c := &Cell{Fault: fault, Engine: kind}
	m.Cells = append(m.Cells, c)
	return c
}

// runAll runs the trials of a lane, some at once.
func (m *Matrix) runAll(ctx context.Context, kind Kind, start func() (servers, error), l lane, o Options) error {
	begin := time.Now()
	todo := make(chan trial)
	go func() {
		defer close(todo)
		first := make(map[*Cell]bool)
		for _, t := range l.trials {
			if again := first[t.cell]; again && o.For > 0 && time.Since(begin) > o.For {
				continue
			}
			first[t.cell] = true
			todo <- t
		}
	}()
	var all sync.WaitGroup
	var errs []error
	for range l.workers {
		all.Go(func() {
			for t := range todo {
				if err := m.run(ctx, kind, start, l.each, t, o); err != nil {
					m.mu.Lock()
					errs = append(errs, fmt.Errorf("%s: %w", t.fault.Name, err))
					m.mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// run runs one trial and takes over what it has shown.
func (m *Matrix) run(ctx context.Context, kind Kind, start func() (servers, error), each bool, t trial, o Options) error {
	s, err := start()
	if err != nil {
		return err
	}
	began := time.Now()
	r, err := runOnce(ctx, s, t.fault)
	if each {
		err = errors.Join(err, s.close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Versions[kind] = s.primary.Version
	if err == nil {
		t.cell.add(r)
	}
	o.Logf("%-10s %-32s %5.1f s, %d ops, %d strikes; violations %v, of the control %v %v", kind, t.fault.Name, time.Since(began).Seconds(),
		r.Ops, r.Strikes, counts(r.Violations), counts(r.Control), err)
	for p, texts := range r.Violations {
		for _, text := range texts {
			o.Logf("%-10s %-32s %v: %s", kind, t.fault.Name, Promise(p), text)
		}
	}
	return err
}

func counts(v violations) (n [promises]int) {
	for p := range v {
		n[p] = len(v[p])
	}
	return n
}

const mostNotes = 5

func (c *Cell) add(r Run) {
	c.Runs++
	c.Strikes += r.Strikes
	c.Ops += r.Ops
	for p := range r.Violations {
		c.Violations[p] += len(r.Violations[p])
		c.Control[p] += len(r.Control[p])
		for _, text := range r.Violations[p] {
			if len(c.Notes) < mostNotes {
				c.Notes = append(c.Notes, fmt.Sprintf("%v: %s", Promise(p), text))
			}
		}
	}
}

// Problems are the promises that were broken, the faults that did not strike, and the controls
// that were not noticed.
func (m *Matrix) Problems() (all []string) {
	control := make(map[Kind][promises]int)
	for _, c := range m.Cells {
		sum := control[c.Engine]
		for p, n := range c.Violations {
			sum[p] += c.Control[p]
			if n > 0 {
				all = append(all, fmt.Sprintf("%s, %s: %d violations of %q: %q", c.Engine, c.Fault, n, Promise(p), c.Notes))
			}
		}
		control[c.Engine] = sum
		if c.Strikes == 0 {
			all = append(all, fmt.Sprintf("%s, %s: the fault did not strike in %d runs", c.Engine, c.Fault, c.Runs))
		}
	}
	for kind, sum := range control {
		for p, n := range sum {
			if n == 0 {
				all = append(all, fmt.Sprintf("%s: the control of %q was not noticed", kind, Promise(p)))
			}
		}
	}
	return all
}
