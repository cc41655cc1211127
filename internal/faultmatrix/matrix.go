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
)

// Kind is a product.
type Kind = devdb.Kind

// parallel is how many runs share a server.
const parallel = 4

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
		shared, own := m.trials(kind, only, o.Runs)
		if err := m.measure(ctx, kind, shared, own, o); err != nil {
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

// trials are the runs on an engine: those that share a server, and those that need one of their
// own.
func (m *Matrix) trials(kind Kind, only *regexp.Regexp, runs int) (shared, own []trial) {
	for range runs {
		for _, f := range Faults() {
			if !only.MatchString(f.Name) || !f.has(kind) {
				continue
			}
			t := trial{f, m.cell(f.Name, kind)}
			if f.Own {
				own = append(own, t)
			} else {
				shared = append(shared, t)
			}
		}
	}
	return shared, own
}

func (m *Matrix) measure(ctx context.Context, kind Kind, shared, own []trial, o Options) error {
	var lanes sync.WaitGroup
	errs := make(chan error, 2)
	for _, lane := range []struct {
		trials  []trial
		o       devdb.Options
		workers int
	}{{shared, devdb.Options{}, parallel}, {own, devdb.Options{Durable: true}, 1}} {
		if len(lane.trials) == 0 {
			continue
		}
		lanes.Go(func() {
			server, err := devdb.Start(ctx, kind, lane.o)
			if err != nil {
				errs <- err
				return
			}
			m.mu.Lock()
			m.Versions[kind] = server.Version
			m.mu.Unlock()
			errs <- errors.Join(m.runAll(ctx, server, lane.trials, lane.workers, o), server.Close())
		})
	}
	lanes.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
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

// runAll runs trials on one server, some at once.
func (m *Matrix) runAll(ctx context.Context, server *devdb.Server, trials []trial, workers int, o Options) error {
	start := time.Now()
	todo := make(chan trial)
	go func() {
		defer close(todo)
		first := make(map[*Cell]bool)
		for _, t := range trials {
			if again := first[t.cell]; again && o.For > 0 && time.Since(start) > o.For {
				continue
			}
			first[t.cell] = true
			todo <- t
		}
	}()
	var all sync.WaitGroup
	var errs []error
	for range workers {
		all.Go(func() {
			for t := range todo {
				began := time.Now()
				r, err := runOnce(ctx, server, t.fault)
				m.mu.Lock()
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", t.fault.Name, err))
				} else {
					t.cell.add(r)
				}
				o.Logf("%-10s %-32s %5.1f s, %d ops, %d strikes; violations %v, of the control %v %v", server.Kind, t.fault.Name, time.Since(began).Seconds(),
					r.Ops, r.Strikes, counts(r.Violations), counts(r.Control), err)
				for p, texts := range r.Violations {
					for _, text := range texts {
						o.Logf("%-10s %-32s %v: %s", server.Kind, t.fault.Name, Promise(p), text)
					}
				}
				m.mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
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
