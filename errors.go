package dblock

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that every package of the toolkit can return. They are disjoint, because callers react
// differently to each. Match them with errors.Is.
var (
	// ErrUnavailable: the server can't be reached, refuses connections of this user, has no space,
	// or refuses writes. Nothing was written.
	ErrUnavailable = errors.New("dblock: database unavailable")

	// ErrOutcomeUnknown: the request was sent and got no reply, so it may or may not have taken
	// effect. Send the same key again, or look it up, to learn which.
	ErrOutcomeUnknown = errors.New("dblock: outcome unknown")

	// ErrOverloaded: too many requests wait in this process, and nothing was sent; or the server's
	// table of locks is full.
	ErrOverloaded = errors.New("dblock: overloaded")

	// ErrBusy: a lock or a connection was not available within the bound. Nothing was written.
	ErrBusy = errors.New("dblock: busy")

	// ErrConflict: the server rolled the transaction back in favor of others (a deadlock, a failed
	// serialization), each time that dblock ran it. Nothing was written. Call again later; run a
	// transaction of your own again from its first statement.
	ErrConflict = errors.New("dblock: conflict with other transactions")

	// ErrTxEnded: the transaction had ended before its commit. Its function went on after an error
	// that rolled it back, or ended it. On Postgres nothing was written; on MySQL and MariaDB what
	// was sent after that error was.
	ErrTxEnded = errors.New("dblock: the transaction had ended before its commit")

	// ErrClosed: the object was closed before the call. Nothing was sent.
	ErrClosed = errors.New("dblock: closed")

	// ErrSchema: dblock's tables are missing, older or newer than this program. The error is a
	// *SchemaError.
	ErrSchema = errors.New("dblock: schema does not match")

	// ErrPermission: the server's user lacks a privilege. Nothing was written. `dblock doctor`
	// prints the GRANT statements that a service needs.
	ErrPermission = errors.New("dblock: permission denied")

	// ErrUnsupported: this kind of database lacks what the call asks for. The error says what to
	// use instead. Nothing was written.
	ErrUnsupported = errors.New("dblock: not supported by this database")

	// ErrServerTooOld: the server lacks what dblock needs. The error is a *ServerVersionError.
	ErrServerTooOld = errors.New("dblock: server too old")
)

// SchemaError says how a database's dblock tables differ from what this program needs.
type SchemaError struct {
	Have int64 // version found in the database; 0 when there are no tables
	Want int64 // version this program needs

	// Differences says what the tables lack of their version, or have otherwise: columns with their
	// types and defaults, indexes, and CHECKs with their expressions. It also says what makes a
	// table unsafe. On every server that is a BEFORE trigger for each row. On MySQL and MariaDB it
	// is another storage engine than InnoDB, and a unique index of yours on a table into which
	// dblock inserts with IGNORE or ON DUPLICATE KEY UPDATE. On Postgres it is UNLOGGED, row
	// security that applies to the user, a rule that replaces writes, and REPLICA IDENTITY NOTHING
	// of a table that is published. Empty if the versions differ.
	Differences []string
}

func (e *SchemaError) Error() string {
	switch {
	case len(e.Differences) > 0:
		return fmt.Sprintf("dblock: the database's dblock tables are not those of version %d: %s: run `dblock migrate up`, which creates what is missing and names what to alter",
			e.Have, some(e.Differences))
	case e.Have == 0:
		return fmt.Sprintf("dblock: the database has no dblock tables, or dblock_schema_version records no version of them "+
			"(version %d is needed): run `dblock migrate up`", e.Want)
	case e.Have < e.Want:
		return fmt.Sprintf("dblock: the database's dblock tables have version %d, older than %d: run `dblock migrate up`", e.Have, e.Want)
	default:
		return fmt.Sprintf("dblock: the database's dblock tables have version %d, newer than %d, the latest this program knows: "+
			"update the program, or run the newer program's `dblock migrate down`", e.Have, e.Want)
	}
}

// some joins the first items of a list.
func some(list []string) string {
	const most = 5
	if len(list) > most {
		return fmt.Sprintf("%s, and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// Is makes errors.Is(err, ErrSchema) true.
func (e *SchemaError) Is(target error) bool { return target == ErrSchema }

// ServerVersionError says which server version was found and which is needed.
type ServerVersionError struct {
	Server string // "PostgreSQL", "MySQL" or "MariaDB"
	Have   string // for example "13.4"
	Need   string // the oldest version that works, for example "14"
}

func (e *ServerVersionError) Error() string {
	return fmt.Sprintf("dblock: %s %s is too old: %s or later is needed", e.Server, e.Have, e.Need)
}

// Is makes errors.Is(err, ErrServerTooOld) true.
func (e *ServerVersionError) Is(target error) bool { return target == ErrServerTooOld }
