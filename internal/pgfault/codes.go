package pgfault

import "strings"

// SQLSTATEs that are told apart in dblock, by class, from
// https://www.postgresql.org/docs/current/errcodes-appendix.html#ERRCODES-TABLE.
const (
	// Class 08: connection exception.
	classConnection   = "08"
	protocolViolation = "08P01"

	// Class 0A: feature not supported.
	Unsupported = "0A000" // to lock the rows of a join's nullable side, of an aggregate, of a view that is none of one table

	// Class 22: data exception.
	classData       = "22"
	classProcedure  = "P0" // a trigger's RAISE, and what else its code ends with
	InvalidDatetime = "22007"
	InvalidEncoding = "22021"
	InvalidText     = "22P02"

	// Class 23: integrity constraint violation.
	classIntegrity   = "23"
	notNullViolation = "23502"
	uniqueViolation  = "23505"
	checkViolation   = "23514"

	// Class 25: invalid transaction state.
	ReadOnlyTransaction = "25006"
	NoTransaction       = "25P01"
	FailedTransaction   = "25P02" // an earlier statement failed

	// Class 26: invalid SQL statement name.
	noSuchStatement = "26000" // DISCARD ALL on the connection: the driver prepares it again

	// Class 3F: invalid schema name.
	InvalidSchemaName = "3F000"

	// Class 40: transaction rollback. Of the rest of the class 40002 blames a constraint, and 40003 does not know the outcome:
	// neither is run again.
	serializationFailure = "40001" // https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html
	deadlockDetected     = "40P01" // https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-DEADLOCKS

	// Class 42: syntax error or access rule violation.
	NotPermitted    = "42501"
	UndefinedColumn = "42703"
	UndefinedTable  = "42P01"

	// Class 53: insufficient resources.
	OutOfMemory        = "53200" // as a rule the table of locks: max_locks_per_transaction
	tooManyConnections = "53300"
	classResources     = "53" // a disk that is full, for example

	// Class 55: object not in prerequisite state.
	lockNotAvailable = "55P03" // NOWAIT, or lock_timeout

	// Class 57: operator intervention: the server shuts down, crashed, or starts.
	classOperator = "57"
	queryCanceled = "57014" // the server's statement_timeout, or an administrator

	// Class 58: system error: the server cannot read or write its files.
	classSystem = "58"

	// Class P0: PL/pgSQL error.
)

// classes are those that Postgres uses.
var classes = strings.Fields("00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B 3D 3F 40 42 44 " +
	"53 54 55 57 58 72 F0 HV P0 XX")
