package queue

import (
	"context"
	"slices"
	"testing"
)

// TestMiddlewareIsAround: the first middleware is the outermost, and the handler has their context.
func TestMiddlewareIsAround(t *testing.T) {
	t.Parallel()
	type key struct{}
	var said []string
	around := func(name string) Middleware {
		return func(ctx context.Context, job Info, next Next) error {
			said = append(said, name+" "+job.Kind)
			defer func() { said = append(said, name+" is left") }()
			return next(context.WithValue(ctx, key{}, "inside "+name))
		}
	}
	h := &handler{run: func(ctx context.Context, _ *attempt) error {
		said = append(said, "handler "+ctx.Value(key{}).(string))
		return nil
	}}
	w := &worker{o: WorkerOptions{Middleware: []Middleware{around("outer"), around("inner")}}}
	if err := (&attempt{w: w, h: h, info: Info{Kind: "note"}}).call(t.Context()); err != nil {
		t.Error(err)
	}
	want := []string{"outer note", "inner note", "handler inside inner", "inner is left", "outer is left"}
	if !slices.Equal(said, want) {
		t.Errorf("%q, not %q", said, want)
	}
}
