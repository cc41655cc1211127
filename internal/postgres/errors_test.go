package postgres_test

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestUnavailable: the error of a server that is full, or cannot use its files, is worth another
// try later. After the second the outcome of a commit is not known.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]sqlerr.Class{
		"53000": sqlerr.Unavailable, "53100": sqlerr.Unavailable, "53300": sqlerr.Unavailable, "53400": sqlerr.Unavailable, "58000": sqlerr.Unresolved, "58030": sqlerr.Unresolved,
	} {
		err := faultconn.PostgresError([]byte("SERROR\x00VERROR\x00C" + code + "\x00Mno\x00\x00"))
		if got := postgres.Classify(err); got != want {
			t.Errorf("%v is of class %v, want %v", err, got, want)
		}
		if got := postgres.Classify(sqlerr.Unwritten(err)); got != sqlerr.Unavailable {
			t.Errorf("%v is of class %v if nothing was written, want unavailable", err, got)
		}
	}
}

// TestRaised: what a trigger raises is one row's fault, with whatever SQLSTATE.
func TestRaised(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]sqlerr.Class{
		"P0001": sqlerr.BadInput, "P0002": sqlerr.BadInput, "45000": sqlerr.BadInput, "MY001": sqlerr.BadInput, "23514": sqlerr.BadInput,
		"42501": sqlerr.NotPermitted, "XX000": sqlerr.Unclassified, "40001": sqlerr.Retryable,
	} {
		err := faultconn.PostgresError([]byte("SERROR\x00VERROR\x00C" + code + "\x00Mno\x00\x00"))
		if got := postgres.Classify(err); got != want {
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
	for fields, want := range map[string]sqlerr.Class{
		"C23505\x00naudit_pkey" + in: sqlerr.BadInput, "C42P01" + in: sqlerr.BadInput, "CXX000" + in: sqlerr.BadInput,
		"C25006" + in: sqlerr.BadInput, "C57P01" + in: sqlerr.BadInput, "C08006" + in: sqlerr.BadInput,
		"C53300" + in: sqlerr.BadInput, "C08006\x00WPL/pgSQL-Funktion audit() Zeile 3 bei RAISE": sqlerr.BadInput,
		"C23505\x00nowners_key": sqlerr.BadInput, "C23505\x00ndblock_reservation_buyer_key": sqlerr.BadInput,
		"C23505\x00ndblock_reservation_pkey": sqlerr.Duplicate, "C42P01": sqlerr.NoSchema, "C08006": sqlerr.Unresolved,
		"C40001" + in: sqlerr.Retryable, "C40P01" + in: sqlerr.Retryable, "C55P03" + in: sqlerr.Busy,
		"C57014" + in: sqlerr.Busy, "C42703": sqlerr.NoSchema, "C42703" + in: sqlerr.BadInput, "C26000": sqlerr.Unavailable,
		"C0A000\x00RRevalidateCachedQuery": sqlerr.Unavailable, "C08P01\x00RPortalSetResultFormat": sqlerr.Unavailable, "C0A000": sqlerr.Unclassified, "C40P01" + own: sqlerr.Retryable, "C25006" + own: sqlerr.Unavailable,
	} {
		err := faultconn.PostgresError([]byte("SERROR\x00VERROR\x00" + fields + "\x00Mno\x00\x00"))
		if got := postgres.ClassifyOwn(err); got != want {
			t.Errorf("%q is of class %v, want %v", fields, got, want)
		}
	}
	ended := faultconn.PostgresError([]byte("SFATAL\x00VFATAL\x00C57P01\x00Mno" + in + "\x00\x00"))
	if got := postgres.ClassifyOwn(ended); got != sqlerr.Unresolved {
		t.Errorf("a session that was ended in a trigger is of class %v, want unresolved", got)
	}
}

// TestCheckSearchPath: pg_catalog is searched first unless the path names it later.
func TestCheckSearchPath(t *testing.T) {
	t.Parallel()
	for path, first := range map[string]bool{
		"": true, `""`: true, `"$user", public`: true, "app": true, "pg_catalog": true, "pg_catalog, public": true,
		" PG_Catalog ,app, pg_catalog": true, `"PG_CATALOG", app`: true, `app, "pg_catalog "`: true, `"a, ""pg_catalog"`: true,
		`"a"",pg_catalog,"`: true, "app, my_pg_catalog": true,
		"public, pg_catalog": false, "public,PG_CATALOG": false, "app ,\n\t pg_catalog\t": false, `"$user", public, "pg_catalog"`: false,
		`"a, ""b",pg_catalog`: false, `"", pg_catalog`: false, `"a""",pg_catalog, x`: false, "pg_temp, pg_catalog": false, "é, Pg_catalog": false,
	} {
		err := postgres.CheckSearchPath(path)
		if (err == nil) != first || err != nil && !errors.Is(err, dblock.ErrUnsupported) {
			t.Errorf("search_path %s: %v, want pg_catalog first: %v", path, err, first)
		}
	}
}
