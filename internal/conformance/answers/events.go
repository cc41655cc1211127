package answers

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultwire"
)

// event is what a server reports, and the public error that every package returns for it.
type event struct {
	name string
	err  error
	want error
}

func postgresEvent(name, code string, want error) event {
	return event{name, faultwire.PostgresError([]byte("SERROR\x00VERROR\x00C" + code + "\x00Mno\x00\x00")), want}
}

func events(kind devdb.Kind) []event {
	if kind == devdb.Postgres {
		return []event{
			postgresEvent("deadlock", "40P01", dblock.ErrConflict),
			postgresEvent("serialization failure", "40001", dblock.ErrConflict),
			postgresEvent("lock timeout", "55P03", dblock.ErrBusy),
			postgresEvent("statement timeout", "57014", dblock.ErrBusy),
			postgresEvent("full lock table", "53200", dblock.ErrOverloaded),
			postgresEvent(missingTable, "42P01", dblock.ErrSchema),
			postgresEvent("read-only server", "25006", dblock.ErrUnavailable),
			postgresEvent("too many connections", "53300", dblock.ErrUnavailable),
		}
	}
	return []event{
		{"deadlock", faultwire.MySQLError(1213, "40001", "Deadlock found"), dblock.ErrConflict},
		{"serialization failure", faultwire.MySQLError(1020, "HY000", "Record has changed"), dblock.ErrConflict},
		{"lock timeout", faultwire.MySQLError(1205, "HY000", "Lock wait timeout exceeded"), dblock.ErrBusy},
		{"NOWAIT", faultwire.MySQLError(3572, "HY000", "Statement aborted"), dblock.ErrBusy},
		{"full lock table", faultwire.MySQLError(1206, "HY000", "The number of locks exceeds the table"), dblock.ErrOverloaded},
		{missingTable, faultwire.MySQLError(1146, "42S02", "Table 'db.dblock_lease' doesn't exist"), dblock.ErrSchema},
		{"read-only server", faultwire.MySQLError(1290, "HY000", "running with the --read-only option"), dblock.ErrUnavailable},
		{"too many connections", faultwire.MySQLError(1040, "08004", "Too many connections"), dblock.ErrUnavailable},
	}
}

const missingTable = "missing table"

// SameEverywhere checks that a package returns the same public error for an event as all others do.
// returned has the package put an error of the driver into its own words.
func SameEverywhere(t *testing.T, kind devdb.Kind, returned func(err error) error) {
	t.Helper()
	sameEverywhere(t, events(kind), returned)
}

// SameOnHostsTables is SameEverywhere for statements on tables of the host's: that one is missing
// says nothing of dblock's schema.
func SameOnHostsTables(t *testing.T, kind devdb.Kind, returned func(err error) error) {
	t.Helper()
	all := events(kind)
	for i := range all {
		if all[i].name == missingTable {
			all[i].want = nil
		}
	}
	sameEverywhere(t, all, returned)
}

func sameEverywhere(t *testing.T, all []event, returned func(err error) error) {
	t.Helper()
	public := []error{
		dblock.ErrConflict, dblock.ErrBusy, dblock.ErrUnavailable, dblock.ErrOutcomeUnknown, dblock.ErrOverloaded, dblock.ErrSchema,
	}
	for _, e := range all {
		got := returned(e.err)
		assert.ErrorIs(t, got, e.err, e.name)
		for _, is := range public {
			assert.Equal(t, is == e.want, errors.Is(got, is), "%s: is it %v? %v", e.name, is, got)
		}
	}
}
