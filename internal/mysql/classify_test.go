package mysql_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestUnavailable: the error of a server that takes no connection, or is full, is worth another try
// later.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for number, text := range map[uint16]string{
		1021: "Disk full", 1037: "Out of memory", 1038: "Out of sort memory", 3989: "Schema is read only", 1040: "Too many connections", 1041: "Out of resources", 1045: "Access denied for user",
		1114: "The table is full", 1129: "Host is blocked", 1130: "Host is not allowed to connect", 1203: "more than 'max_user_connections'",
		1226: "User has exceeded the 'max_user_connections' resource", 1698: "Access denied for user", 1820: "You must reset your password",
		1862: "Your password has expired", 3118: "Account is locked",
		3032: "The server is currently in offline mode", 3159: "Connections using insecure transport are prohibited",
		4151: "Access denied, this account is locked",
	} {
		err := faultconn.MySQLError(number, "HY000", text)
		if got := mysql.Classify(err); got != sqlerr.Unavailable {
			t.Errorf("%v is of class %v, want unavailable", err, got)
		}
	}
}

// TestInterruptedUpdate: MySQL says of an UPDATE of several tables that was interrupted that the
// error is unknown.
func TestInterruptedUpdate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]sqlerr.Class{"An error occurred in multi-table update": sqlerr.Unresolved, "Unknown error": sqlerr.Unclassified} {
		if got := mysql.Classify(faultconn.MySQLError(1105, "HY000", text)); got != want {
			t.Errorf("%q is of class %v, want %v", text, got, want)
		}
	}
}

// TestSignalled: what a trigger signals is one row's fault, with whatever number.
func TestSignalled(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1644, 5001, 31001} {
		err := faultconn.MySQLError(number, "45001", "banned")
		if got := mysql.Classify(err); got != sqlerr.BadInput {
			t.Errorf("%v is of class %v, want bad input", err, got)
		}
	}
}

// TestOfOwn: a table that is missing, or a key that is taken, is dblock's own if it has the name of
// such. A text that names none decides nothing.
func TestOfOwn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]sqlerr.Class{
		"Table 'db.audit' doesn't exist":        sqlerr.Unclassified,
		"Table 'dblock_x.audit' doesn't exist":  sqlerr.Unclassified,
		"Table 'db.dblock_stock' doesn't exist": sqlerr.NoSchema,
		"no such table":                         sqlerr.NoSchema,
	} {
		err := faultconn.MySQLError(1146, "42S02", text)
		if got := mysql.ClassifyOwn(err); got != want {
			t.Errorf("%s: it is of class %v, want %v", text, got, want)
		}
	}
	if got := mysql.ClassifyOwn(faultconn.MySQLError(1467, "HY000", "Failed to read auto-increment value from storage engine")); got != sqlerr.Busy {
		t.Errorf("the lock of a counter is of class %v, want busy", got)
	}
	for key, want := range map[string]sqlerr.Class{
		"audit.PRIMARY": sqlerr.BadInput, "what": sqlerr.BadInput, "dblock_reservation.owners": sqlerr.BadInput,
		"audit.ticket": sqlerr.BadInput, "dblock_reservation.PRIMARY": sqlerr.Duplicate,
		"PRIMARY": sqlerr.Duplicate, "ticket": sqlerr.Duplicate, "dblock_ticket.ticket": sqlerr.Duplicate,
	} {
		for _, end := range []string{"'", "' taken"} {
			err := faultconn.MySQLError(1062, "23000", "Duplicate entry 'it's' for key '"+key+end)
			if got := mysql.ClassifyOwn(err); got != want {
				t.Errorf("key %s: it is of class %v, want %v", key, got, want)
			}
		}
	}
}
