package bench

import (
	"errors"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/optimistic"
)

// kinds are the errors of dblock that clients have to expect, and what they are counted as.
var kinds = []struct {
	err  error
	kind string
}{
	{inventory.ErrSoldOut, "sold_out"},
	{inventory.ErrLimitExceeded, "over_limit"},
	{optimistic.ErrStale, "conflict"},
	{dblock.ErrBusy, "busy"},
	{dblock.ErrConflict, "deadlock"},
	{dblock.ErrOverloaded, "overloaded"},
}

// failureKind returns the kind that an operation's error counts as; "" is an error that ends the
// run.
func failureKind(err error) string {
	var f *Failure
	if errors.As(err, &f) {
		return f.Kind
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return ""
}
