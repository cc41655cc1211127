package pgfault

// SQLSTATEs that dblock tells apart by themselves. Package sqlerr has the table of their classes,
// from https://www.postgresql.org/docs/current/errcodes-appendix.html#ERRCODES-TABLE.
const (
	connectionException = "08000"
	protocolViolation   = "08P01"

	// Unsupported refuses to lock the rows of a join's nullable side, of an aggregate, or of a view
	// of several tables.
	Unsupported = "0A000"

	InvalidDatetime = "22007"
	InvalidEncoding = "22021"
	InvalidText     = "22P02"

	notNullViolation = "23502"
	uniqueViolation  = "23505"
	checkViolation   = "23514"

	ReadOnlyTransaction = "25006"
	NoTransaction       = "25P01"
	FailedTransaction   = "25P02" // an earlier statement failed

	InvalidSchemaName = "3F000"

	serializationFailure = "40001" // https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html
	deadlockDetected     = "40P01" // https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-DEADLOCKS

	NotPermitted    = "42501"
	UndefinedColumn = "42703"
	UndefinedTable  = "42P01"

	OutOfMemory = "53200" // as a rule the table of locks: max_locks_per_transaction

	limitExceeded = "54000" // of COMMIT: the queue of notifications is full

	lockNotAvailable = "55P03" // NOWAIT, or lock_timeout
)
