package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
)

// TestClaimsCount: each claim sells a seat, and the table knows how many.
func TestClaimsCount(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		for _, s := range claims() {
			t.Run(string(kind)+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				env := &Env{Kind: kind, Server: testdb.Server(t, kind), DSN: testdb.DSN(t, kind), Clients: 2, Conns: 2}
				w, err := s.Open(t.Context(), env)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = w.Close() }()
				for n := range 2 {
					round, err := w.Round(t.Context(), n)
					if err != nil {
						t.Fatal(err)
					}
					for id := range 2 {
						op, err := round.Client(id)
						if err != nil {
							t.Fatal(err)
						}
						for range 3 {
							if _, err := op(t.Context()); err != nil {
								t.Fatal(err)
							}
						}
					}
					if err := round.Check(t.Context(), 6); err != nil {
						t.Error(err)
					}
					if err := round.Check(t.Context(), 1); err == nil {
						t.Error("a wrong count is not noticed")
					}
				}
			})
		}
	}
}

// TestOneSeatForTwoIsNoticed: it ends the run.
func TestOneSeatForTwoIsNoticed(t *testing.T) {
	t.Parallel()
	w := &claimWorkload{seats: sameSeat{}, holders: make([]atomic.Bool, claimSeats+1)}
	round, err := w.Round(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range []error{nil, errSeatTwice} {
		op, err := round.Client(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := op(t.Context()); !errors.Is(err, want) {
			t.Errorf("caller %d: %v", id, err)
		}
	}
}

// sameSeat sells one seat again and again.
type sameSeat struct{}

func (sameSeat) sell(context.Context) (int64, error) { return 7, nil }
func (sameSeat) sold(context.Context) (int64, error) { return 0, nil }
func (sameSeat) free(context.Context) error          { return nil }
func (sameSeat) Close() error                        { return nil }
