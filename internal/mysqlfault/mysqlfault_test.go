package mysqlfault_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/faultwire"
	"github.com/dblock-go/dblock/internal/mysqlfault"
)

// TestUnavailable: what a server says that takes no connection, or has no room, is worth another try later.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for number, text := range map[uint16]string{
		1021: "Disk full", 1037: "Out of memory", 1038: "Out of sort memory", 3989: "Schema is read only", 1040: "Too many connections", 1041: "Out of resources", 1045: "Access denied for user",
		1114: "The table is full", 1129: "Host is blocked", 1130: "Host is not allowed to connect", 1203: "more than 'max_user_connections'",
		1226: "User has exceeded the 'max_user_connections' resource", 1698: "Access denied for user", 1820: "You must reset your password",
		1862: "Your password has expired", 3118: "Account is locked",
	} {
		err := faultwire.MySQLError(number, "HY000", text)
		if got := mysqlfault.Of(err); got != fault.Unreachable {
			t.Errorf("%v is of class %v, want unreachable", err, got)
		}
	}
}

// TestInterruptedUpdate: MySQL says of an UPDATE of several tables that was interrupted that the error is unknown.
func TestInterruptedUpdate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fault.Fault{"An error occurred in multi-table update": fault.Lost, "Unknown error": fault.Other} {
		if got := mysqlfault.Of(faultwire.MySQLError(1105, "HY000", text)); got != want {
			t.Errorf("%q is of class %v, want %v", text, got, want)
		}
	}
}

// TestSignalled: what a trigger signals is one row's fault, with whatever number.
func TestSignalled(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1644, 5001, 31001} {
		err := faultwire.MySQLError(number, "45001", "banned")
		if got := mysqlfault.Of(err); got != fault.Poison {
			t.Errorf("%v is of class %v, want poison", err, got)
		}
	}
}

// TestOfOwn: a table that is missing, or a key that is taken, is dblock's own if it has the name of
// such. A text that names none decides nothing.
func TestOfOwn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fault.Fault{
		"Table 'db.audit' doesn't exist":        fault.Other,
		"Table 'dblock_x.audit' doesn't exist":  fault.Other,
		"Table 'db.dblock_stock' doesn't exist": fault.NoSchema,
		"no such table":                         fault.NoSchema,
	} {
		err := faultwire.MySQLError(1146, "42S02", text)
		if got := mysqlfault.OfOwn(err); got != want {
			t.Errorf("%s: it is of class %v, want %v", text, got, want)
		}
	}
	for key, want := range map[string]fault.Fault{
		"audit.PRIMARY": fault.Poison, "what": fault.Poison, "dblock_reservation.owners": fault.Poison,
		"audit.ticket": fault.Poison, "dblock_reservation.PRIMARY": fault.Duplicate,
		"PRIMARY": fault.Duplicate, "ticket": fault.Duplicate, "dblock_ticket.ticket": fault.Duplicate,
	} {
		for _, end := range []string{"'", "' taken"} {
			err := faultwire.MySQLError(1062, "23000", "Duplicate entry 'it's' for key '"+key+end)
			if got := mysqlfault.OfOwn(err); got != want {
				t.Errorf("key %s: it is of class %v, want %v", key, got, want)
			}
		}
	}
}
