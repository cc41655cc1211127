package mysql

// Error numbers that dblock distinguishes by themselves. Package sqlerr has the table of their
// classes.
const (
	cantCommit        = 1180 // ER_ERROR_DURING_COMMIT: see handlerDeadlock
	deadlock          = 1213 // ER_LOCK_DEADLOCK: the whole transaction is rolled back
	namedLockDeadlock = 3058 // ER_USER_LOCK_DEADLOCK: GET_LOCK's, on MySQL; nothing is rolled back

	lockWaitTimeout = 1205 // ER_LOCK_WAIT_TIMEOUT; on MariaDB NOWAIT's, too
	lockNoWait      = 3572 // ER_LOCK_NOWAIT: NOWAIT found the row locked, on MySQL
	autoIncLocked   = 1467 // ER_AUTOINC_READ_FAILED: the lock of the counter did not come in time, or it is exhausted

	queryInterrupted = 1317 // ER_QUERY_INTERRUPTED
	unknownError     = 1105 // ER_UNKNOWN_ERROR: MySQL's, also for an UPDATE of several tables that was interrupted

	// The server takes no writes.
	optionPreventsIt    = 1290 // ER_OPTION_PREVENTS_STATEMENT: --read-only
	ReadOnlyTransaction = 1792 // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	readOnlyServer      = 1836 // ER_READ_ONLY_MODE
	readOnlyMode        = 1874 // ER_INNODB_READ_ONLY
	readOnlySchema      = 3989 // ER_SCHEMA_READ_ONLY: ALTER SCHEMA … READ ONLY = 1, on MySQL

	// The savepoint does not exist. The transaction that set it may have ended, too.
	noSuchSavepoint = 1305 // ER_SP_DOES_NOT_EXIST

	UnknownDatabase = 1049 // ER_BAD_DB_ERROR
	NoSuchColumn    = 1054 // ER_BAD_FIELD_ERROR
	NoSuchTable     = 1146 // ER_NO_SUCH_TABLE
	NoSuchIndex     = 1176 // ER_KEY_DOES_NOT_EXITS, as the server spells it
	WrongUsage      = 1221 // ER_WRONG_USAGE: USE INDEX beside FORCE INDEX, for example
	duplicateEntry  = 1062 // ER_DUP_ENTRY

	NotPermitted = 1142 // ER_TABLEACCESS_DENIED_ERROR
)

// handlerDeadlock is how the text of cantCommit names HA_ERR_LOCK_DEADLOCK: a cluster refused the
// transaction, which is rolled back. After any other text, or the same in another
// lc_messages, the outcome is unknown.
const handlerDeadlock = " error 149 "
