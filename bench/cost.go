package bench

import (
	"context"
	"runtime/metrics"
)

// cost is what a unit of work took beside time. What is not known is 0.
type cost struct {
	Statements float64 `json:"statements"`
	LogBytes   float64 `json:"log_bytes"` // of WAL, or of redo
	Allocs     float64 `json:"allocs"`
	AllocBytes float64 `json:"alloc_bytes"`
}

// reading is the state of all counters at one moment. They only grow.
type reading struct {
	statements, logBytes, allocs, allocBytes int64
}

// meter measures what a round costs.
type meter struct {
	b     *suite
	e     *entry
	start reading
}

func (b *suite) meter(ctx context.Context, e *entry) (*meter, error) {
	m := &meter{b: b, e: e}
	var err error
	m.start, err = m.read(ctx)
	return m, err
}

func (m *meter) read(ctx context.Context) (r reading, err error) {
	if r.logBytes, err = m.b.probe.logBytes(ctx); err != nil {
		return r, err
	}
	counted := false
	if r.statements, counted, err = m.b.probe.statements(ctx); err != nil {
		return r, err
	}
	if !counted {
		r.statements = m.e.env.statements.Load()
	}
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	r.allocs, r.allocBytes = int64(sample[0].Value.Uint64()), int64(sample[1].Value.Uint64())
	return r, nil
}

// stop returns the cost of each of so many units.
func (m *meter) stop(ctx context.Context, units int64) (cost, error) {
	end, err := m.read(ctx)
	if err != nil || units == 0 {
		return cost{}, err
	}
	each := func(from, to int64) float64 { return float64(to-from) / float64(units) }
	return cost{
		Statements: each(m.start.statements, end.statements),
		LogBytes:   each(m.start.logBytes, end.logBytes),
		Allocs:     each(m.start.allocs, end.allocs),
		AllocBytes: each(m.start.allocBytes, end.allocBytes),
	}, nil
}

// ofTheServer leaves out what was counted in this process.
func (c cost) ofTheServer() cost { return cost{LogBytes: c.LogBytes} }
