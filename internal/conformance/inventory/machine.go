package inventory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

const (
	machineSteps = 600 // of a short run; half of them one after the other
	modestSteps  = 150 // under a strategy that refuses
	soakSteps    = 10_000
	machineHands = 8 // that do things at once
	handSKUs     = 4 // of each

	machineProcesses = 3 // of a soak
)

// worker does an op somewhere: in a Store of this process or of another one.
type worker func(ctx context.Context, d op) (reply, error)

// machine does things at random and holds each answer against the model.
type machine struct {
	s     *env
	doers []worker

	still sync.RWMutex // held to sweep, which is everybody's affair
	mu    sync.Mutex
	model *model
	did   map[string]int // how often each answer was given
}

// hand is one that does one thing after the other. Each has SKUs, buyers and keys of its own, so that the model knows
// what each answer must be, however many are at work at once; only statements are shared.
type hand struct {
	m      *machine
	name   string
	random *rand.Rand
	keys   []op // all orders that were ever sent

	stocked, changes int // how many SKUs, by how many changes
}

// answersAsTheModelDoes does things at random, in several Stores; a soak, in several processes.
func answersAsTheModelDoes(t *testing.T, s *env) {
	steps := machineSteps
	if !s.o.Strategy.SellsAll() {
		steps = modestSteps
	}
	o := s.o
	o.RecordRefusals = s.o.Strategy == inventory.Direct
	doers := []worker{doneBy(s.open(t, o)), doneBy(s.open(t, o))}
	if os.Getenv(suite.EnvSoak) != "" {
		steps = soakSteps
		for range machineProcesses {
			do, _ := s.startDoer(t, o)
			doers = append(doers, do)
		}
	}
	s.keepsBooks(t)
	m := s.newMachine(doers, o.RecordRefusals)
	if err := m.run(t.Context(), suite.SeedOf(t), steps); err != nil {
		t.Error(err)
	}
	t.Logf("%d kinds of answers: %v", len(m.did), m.did)
	s.balanced(t)
}

// answersAsTheModelDoesFromAllotments has units lie where others do not see them first.
func answersAsTheModelDoesFromAllotments(t *testing.T, s *env) {
	s.keepsBooks(t)
	m := s.newMachine(nil, false)
	for _, units := range []int64{0, 2, 5} { // also who has none looks after those of others, and has to be closed
		m.doers = append(m.doers, doneBy(s.openClosed(t, inventory.Options{Allotment: units})))
	}
	if err := m.run(t.Context(), suite.SeedOf(t), machineSteps); err != nil {
		t.Error(err)
	}
	t.Logf("%d kinds of answers: %v", len(m.did), m.did)
	s.balanced(t)
}

// theModelNotices is the control: without its guards a database gives answers that the model does not.
func theModelNotices(t *testing.T, e Inventory) {
	for name, sabotage := range controls {
		if name == "keys that are no keys" {
			continue // who is first is looked up, too: only two at once would both be
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e.env(t, inventory.Options{})
			sabotage(t, s)
			err := s.newMachine([]worker{doneBy(s.Store)}, false).run(t.Context(), suite.SeedOf(t), machineSteps)
			if err == nil {
				t.Error("nothing was noticed: the test of the model could not fail")
			}
			t.Log(err)
		})
	}
}

func doneBy(store *inventory.Store) worker {
	return func(ctx context.Context, d op) (reply, error) { return d.do(ctx, store), nil }
}

func (s *env) newMachine(doers []worker, records bool) *machine {
	return &machine{s: s, doers: doers, model: newModel(records), did: map[string]int{}}
}

// run does half of it one step after the other, and half of it with many hands. Its error is the first answer that the model
// would not have given.
func (m *machine) run(ctx context.Context, seed uint64, steps int) error {
	if err := m.hand("alone", seed).work(ctx, steps/2); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var hands sync.WaitGroup
	for i := range machineHands {
		h := m.hand(fmt.Sprint("hand ", i), seed+uint64(i)+1)
		hands.Go(func() {
			if err := h.work(ctx, steps/2/machineHands); err != nil {
				stop(err)
			}
		})
	}
	hands.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	got, err := m.s.Audit(ctx)
	if err != nil {
		return err
	}
	for i := range got { // who has them is no affair of the model's
		got[i].Available, got[i].Allotted = got[i].Available+got[i].Allotted, 0
	}
	if diff := cmp.Diff(m.model.books(), got); diff != "" {
		return fmt.Errorf("the books are not what the model says (-model +books):\n%s", diff)
	}
	return nil
}

func (m *machine) hand(name string, seed uint64) *hand {
	return &hand{m: m, name: name, random: rand.New(rand.NewPCG(seed, 0))}
}

func (h *hand) work(ctx context.Context, steps int) error {
	for i := 0; i < steps && ctx.Err() == nil; i++ {
		if err := h.step(ctx); err != nil {
			return fmt.Errorf("%s, step %d: %w", h.name, i, err)
		}
	}
	return nil
}

// step does one thing, and holds what it was told against the model.
func (h *hand) step(ctx context.Context) error {
	d, expires := h.next()
	if d.What == toSweep {
		h.m.still.Lock()
		defer h.m.still.Unlock()
	} else {
		h.m.still.RLock()
		defer h.m.still.RUnlock()
	}
	if expires {
		return h.expire(ctx, d.Request.Key)
	}
	got, err := h.m.doers[h.random.IntN(len(h.m.doers))](ctx, d)
	if err != nil || ctx.Err() != nil {
		return err
	}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	want := h.m.model.do(d)
	h.m.did[fmt.Sprintf("%s: %v %s", d.What, got.State, got.Kind)]++
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%+v (-model +store):\n%s", d, diff)
	}
	return nil
}

// expire has the time be up of what is held, by moving it into the past.
func (h *hand) expire(ctx context.Context, key string) error {
	h.m.mu.Lock()
	moment := h.m.model.expire(key)
	h.m.mu.Unlock()
	if moment == 0 {
		return nil
	}
	return h.m.s.expire(ctx, key, moment)
}

// expire makes what is held under a key due since so many seconds after a day long ago.
func (s *env) expire(ctx context.Context, key string, moment int64) error {
	at := time.Date(2000, 1, 1, 0, 0, int(moment), 0, time.UTC).Format("2006-01-02 15:04:05")
	if s.e.Kind == devdb.Postgres {
		at += "+00"
	}
	_, err := s.db.ExecContext(ctx, fmt.Sprintf(
		"UPDATE dblock_reservation SET expires_at = '%s' WHERE reservation_key = '%s' AND state = 1", at, key))
	return err
}

func (m *model) do(d op) reply {
	key := d.Request.Key
	switch d.What {
	case toReserve, toCart:
		return m.reserve(d)
	case toConfirm:
		return m.confirm(key)
	case toCancel:
		return m.cancel(key)
	case toExtend:
		return m.extend(key)
	case toLookUp:
		return m.look(key)
	case toSweep:
		return m.sweep(d.Most)
	}
	return m.restock(d.Adjustment)
}
