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

// TestOfOwn: what a function, or a unique index of the host's, has refused of a statement of
// dblock's is one row's fault, with whatever SQLSTATE. Where transactions meet, or the session
// ends, no row is to blame.
func TestOfOwn(t *testing.T) {
	t.Parallel()
	const in = "\x00WPL/pgSQL function audit() line 3 at RAISE"
	const own = "\x00Wwhile locking tuple (0,1) in relation \"dblock_stock\""
	for fields, want := range map[string]fault.Fault{
		"C23505\x00naudit_pkey" + in: fault.Poison, "C42P01" + in: fault.Poison, "CXX000" + in: fault.Poison,
		"C25006" + in: fault.Poison, "C57P01" + in: fault.Poison, "C08006" + in: fault.Poison,
		"C53300" + in: fault.Poison, "C08006\x00WPL/pgSQL-Funktion audit() Zeile 3 bei RAISE": fault.Poison,
		"C23505\x00nowners_key": fault.Poison, "C23505\x00ndblock_reservation_buyer_key": fault.Poison,
		"C23505\x00ndblock_reservation_pkey": fault.Duplicate, "C42P01": fault.NoSchema, "C08006": fault.Lost,
		"C40001" + in: fault.Retry, "C40P01" + in: fault.Retry, "C55P03" + in: fault.Busy,
		"C57014" + in: fault.Busy, "C42703": fault.NoSchema, "C42703" + in: fault.Poison, "C26000": fault.Unreachable,
		"C0A000\x00RRevalidateCachedQuery": fault.Unreachable, "C0A000": fault.Other, "C40P01" + own: fault.Retry, "C25006" + own: fault.Unreachable,
	} {
		err := faultwire.PostgresError([]byte("SERROR\x00VERROR\x00" + fields + "\x00Mno\x00\x00"))
		if got := pgfault.OfOwn(err); got != want {
			t.Errorf("%q is of class %v, want %v", fields, got, want)
		}
	}
	ended := faultwire.PostgresError([]byte("SFATAL\x00VFATAL\x00C57P01\x00Mno" + in + "\x00\x00"))
	if got := pgfault.OfOwn(ended); got != fault.Lost {
		t.Errorf("a session that was ended in a trigger is of class %v, want lost", got)
	}
}
