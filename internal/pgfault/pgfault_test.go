package pgfault_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/faultwire"
	"github.com/dblock-go/dblock/internal/pgfault"
)

// TestUnavailable: what a server says that has no room, or cannot use its files, is worth another try later. After the second the
// outcome of a commit is not known.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]fault.Fault{
		"53000": fault.Unreachable, "53100": fault.Unreachable, "53300": fault.Unreachable, "53400": fault.Unreachable, "58000": fault.Lost, "58030": fault.Lost,
	} {
		err := faultwire.PostgresError([]byte("SERROR\x00VERROR\x00C" + code + "\x00Mno\x00\x00"))
		if got := pgfault.Of(err); got != want {
			t.Errorf("%v is of class %v, want %v", err, got, want)
		}
		if got := pgfault.Of(fault.NoWrite(err)); got != fault.Unreachable {
			t.Errorf("%v is of class %v if nothing was written, want unreachable", err, got)
		}
	}
}

// TestRaised: what a trigger raises is one row's fault, with whatever SQLSTATE.
func TestRaised(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]fault.Fault{
		"P0001": fault.Poison, "P0002": fault.Poison, "45000": fault.Poison, "MY001": fault.Poison, "23514": fault.Poison,
		"42501": fault.Other, "XX000": fault.Other, "40001": fault.Retry,
	} {
		err := faultwire.PostgresError([]byte("SERROR\x00VERROR\x00C" + code + "\x00Mno\x00\x00"))
		if got := pgfault.Of(err); got != want {
			t.Errorf("%s is of class %v, want %v", code, got, want)
		}
	}
}
