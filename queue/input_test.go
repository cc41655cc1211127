package queue

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// noDriver is a database that must not be asked.
type noDriver struct{ driver.Driver }

func (noDriver) Members() driver.Members { return nil }

// TestBadInput gives each call what it refuses before it asks the database.
func TestBadInput(t *testing.T) {
	t.Parallel()
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	q, err := newQueue(noDriver{}, o)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		var invalid *dblock.InvalidError
		if !errors.Is(err, dblock.ErrInvalid) || errors.As(err, &invalid) && invalid.Field == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, long := t.Context(), strings.Repeat("x", MaxNameBytes+1)
	for what, task := range map[string]Task{
		"no kind":                    {},
		"a long kind":                {Kind: long},
		"a kind with NUL":            {Kind: "a\x00b"},
		"a kind that is not UTF-8":   {Kind: "a\xff"},
		"a long queue":               {Kind: "k", Queue: long},
		"a negative delay":           {Kind: "k", Delay: -1},
		"a delay for ever":           {Kind: "k", Delay: math.MaxInt64},
		"no attempts":                {Kind: "k", MaxAttempts: -1},
		"too many attempts":          {Kind: "k", MaxAttempts: math.MaxInt16 + 2},
		"a long unique key":          {Kind: "k", Unique: long + long},
		"a group with NUL":           {Kind: "k", Group: "a\x00b"},
		"a negative limit":           {Kind: "k", Group: "a", GroupLimit: -1},
		"a limit without a group":    {Kind: "k", GroupLimit: 2},
		"too high a limit":           {Kind: "k", Group: "a", GroupLimit: MaxGroupLimit + 1},
		"10 MB":                      {Kind: "k", Args: strings.Repeat("x", 10_000_000)},
		"a value that JSON does not": {Kind: "k", Args: math.Inf(1)},
	} {
		id, err := q.Enqueue(ctx, task)
		refused(what, err)
		if id != (ID{}) {
			t.Errorf("%s: %v", what, id)
		}
	}
	nop := func(context.Context, Job[int]) error { return nil }
	if err := Handle(q, "k", nop); err != nil {
		t.Error(err)
	}
	for what, o := range map[string]WorkerOptions{
		"a long queue":       {Queue: long},
		"no handlers":        {Concurrency: -1},
		"too many handlers":  {Concurrency: 1 << 20},
		"a negative batch":   {Batch: -1},
		"a large batch":      {Batch: 5001},
		"a negative poll":    {Poll: -1},
		"a rare poll":        {Poll: time.Hour},
		"too many exchanges": {Syncs: 17},
		"a rare promotion":   {Promote: time.Hour},
		"a nil middleware":   {Middleware: []Middleware{nil}},
	} {
		refused(what, q.Work(ctx, o))
	}
	if err := q.Work(ctx, WorkerOptions{Ahead: 100_001}); err == nil || !strings.Contains(err.Error(), "Ahead: 100001 is not within 0 to 100000") {
		t.Errorf("far ahead: %v", err)
	}
	for what, o := range map[string]Options{
		"a short TTL":        {TTL: time.Millisecond},
		"a short timeout":    {Timeout: time.Millisecond},
		"a label":            {Label: strings.Repeat("x", 256)},
		"a queue":            {MaxQueue: -1},
		"a negative history": {History: -1},
	} {
		_, err := o.withDefaults()
		refused(what, err)
	}
	second := func(_ any, err error) error { return err }
	for what, err := range map[string]error{
		"a nil Queue":    second(functions{}.EnqueueIn(ctx, nil, nil, nil)),
		"too many tasks": second(q.EnqueueMany(ctx, make([]Task, MaxTasks+1))),
		"two handlers":   Handle(q, "k", nop),
		"no kind":        Handle(q, "", nop),
		"no handler":     Handle[int](q, "other", nil),
		"a nil option":   Handle(q, "other", nop, nil),
		"an id":          second(ParseID("4711")),
		"pause":          q.Pause(ctx, long),
		"resume":         q.Resume(ctx, "a\x00"),
		"list a queue":   second(q.List(ctx, Filter{Queue: long})),
		"list a state":   second(q.List(ctx, Filter{State: 99})),
		"list many":      second(q.List(ctx, Filter{Limit: 1001})),
		"purge an age":   second(q.Purge(ctx, "", -1)),
		"purge":          second(q.Purge(ctx, long, 0)),
		"retry":          second(q.RetryAll(ctx, long)),
		"parse":          second(ParseJobState("moving")),
	} {
		refused(what, err)
	}
}
