package batch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock"
)

// TestAWrongNumberOfAnswersIsAnError: a server that returns too few rows ends no process, and no
// request gets the answer of another one.
func TestAWrongNumberOfAnswersIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) {
			o.Run = func(context.Context, []order, bool) ([]Result[int], error) { return nil, nil }
		})
		if err := <-r.do(t.Context(), "k", 1); !errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("%v, want ErrOutcomeUnknown", err)
		}
	})
}
