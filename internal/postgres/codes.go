package postgres

// SQLSTATEs that dblock distinguishes by themselves. Package sqlerr has the table of their classes,
// from https://www.postgresql.org/docs/current/errcodes-appendix.html#ERRCODES-TABLE.
const (
	codeConnectionException = "08000"
	codeProtocolViolation   = "08P01"
	codeInvalidParameter    = "22023" // a parameter has a value that the server's system does not support

	// CodeUnsupported refuses to lock the rows of a join's nullable side, of an aggregate, or of a
	// view of several tables.
	CodeUnsupported = "0A000"

	CodeInvalidDatetime = "22007"
	CodeInvalidEncoding = "22021"
	CodeInvalidText     = "22P02"

	codeNotNullViolation = "23502"
	codeUniqueViolation  = "23505"
	codeCheckViolation   = "23514"

	CodeReadOnlyTransaction = "25006"
	CodeNoTransaction       = "25P01"
	CodeFailedTransaction   = "25P02" // an earlier statement failed

	CodeInvalidSchemaName = "3F000"

	codeSerializationFailure = "40001" // https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html
	codeDeadlockDetected     = "40P01" // https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-DEADLOCKS

	CodeNotPermitted    = "42501"
	CodeUndefinedColumn = "42703"
	CodeUndefinedTable  = "42P01"

	CodeOutOfMemory = "53200" // as a rule the table of locks: max_locks_per_transaction

	codeLimitExceeded = "54000" // of COMMIT: the queue of notifications is full

	codeLockNotAvailable = "55P03" // NOWAIT, or lock_timeout
)
