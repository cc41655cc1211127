package sale

import (
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/inventory"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	good := Result{Sold: 5, SoldOut: 3, Balance: inventory.Balance{Restocked: 5, Sold: 5}}
	if err := good.Check(); err != nil {
		t.Errorf("a good sale: %v", err)
	}
	for want, spoil := range map[string]func(*Result){
		"never were":     func(r *Result) { r.Oversold = 1 },
		"not in the":     func(r *Result) { r.Lost = 1 },
		"were left":      func(r *Result) { r.Unsold = 1 },
		"off by 1":       func(r *Result) { r.Balance.Restocked = 6 },
		"got no answer":  func(r *Result) { r.Failed, r.Failure = 1, errors.New("down") },
		"the first: dow": func(r *Result) { r.Failed, r.Failure = 1, errors.New("down") },
	} {
		r := good
		spoil(&r)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something with %q", err, want)
		}
	}
}
