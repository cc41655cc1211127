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
	for want, spoil := range map[string]func(*Result){
		"":                    func(*Result) {},
		"never were":          func(r *Result) { r.Oversold = 1 },
		"not in the":          func(r *Result) { r.Unrecorded = 1 },
		"refused as sold out": func(r *Result) { r.Balance = inventory.Balance{Restocked: 6, Sold: 5, Available: 1} },
		"off by 1":            func(r *Result) { r.Balance.Restocked = 6 },
		"got no answer":       func(r *Result) { r.Failed, r.Failure = 1, errors.New("down") },
		"the first: dow":      func(r *Result) { r.Failed, r.Failure = 1, errors.New("down") },
	} {
		for _, sellsAll := range []bool{false, true} {
			r := good
			spoil(&r)
			wants(t, r.Check(sellsAll), want)
		}
	}
}

// TestCheckHoldsAShopToItsPromise: a refusal as busy is a lost sale in every shop, and a fault only
// if the shop promises to sell all.
func TestCheckHoldsAShopToItsPromise(t *testing.T) {
	t.Parallel()
	lost := Result{Sold: 5, Busy: 3, LostSales: 2, Balance: inventory.Balance{Restocked: 7, Sold: 5, Available: 2}}
	wants(t, lost.Check(true), "refused as busy")
	wants(t, lost.Check(false), "")
}

func wants(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v, want %q", err, want)
	}
}
