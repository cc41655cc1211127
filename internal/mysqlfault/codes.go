package mysqlfault

// Error numbers that are told apart in dblock. Those of both servers, and MySQL's own, are from
// https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html, where number n is at #error_er_…; MariaDB's own
// are from https://mariadb.com/kb/en/mariadb-error-code-reference/, where number n is at /kb/en/e<n>/.
const (
	// The transaction gave way to others.
	recordChanged        = 1020 // ER_CHECKREAD: MariaDB, where innodb_snapshot_isolation is on
	cantCommit           = 1180 // ER_ERROR_DURING_COMMIT: with handlerDeadlock a cluster refused the transaction: it is rolled back
	deadlock             = 1213 // ER_LOCK_DEADLOCK: the whole transaction is rolled back
	namedLockDeadlock    = 3058 // ER_USER_LOCK_DEADLOCK: GET_LOCK's, on MySQL; nothing is rolled back. MariaDB says deadlock
	rollbackDuringCommit = 3101 // ER_TRANSACTION_ROLLBACK_DURING_COMMIT: a group refused the transaction: it is rolled back

	// A lock was not had in time. The statement is rolled back, the transaction stands, where innodb_rollback_on_timeout is off:
	// https://dev.mysql.com/doc/refman/8.4/en/innodb-error-handling.html.
	lockWaitTimeout = 1205 // ER_LOCK_WAIT_TIMEOUT; on MariaDB NOWAIT's, too
	lockNoWait      = 3572 // ER_LOCK_NOWAIT: NOWAIT found the row locked, on MySQL

	// A statement took too long, or somebody ended it.
	queryInterrupted = 1317 // ER_QUERY_INTERRUPTED
	unknownError     = 1105 // ER_UNKNOWN_ERROR: MySQL's, also for an UPDATE of several tables that was interrupted
	maxStatementTime = 1969 // ER_STATEMENT_TIMEOUT, on MariaDB
	statementTimeout = 3024 // ER_QUERY_TIMEOUT, on MySQL

	// The server takes no connection, or no writes.
	tooManyConnections  = 1040 // ER_CON_COUNT_ERROR
	serverShutdown      = 1053 // ER_SERVER_SHUTDOWN
	optionPreventsIt    = 1290 // ER_OPTION_PREVENTS_STATEMENT: --read-only
	ReadOnlyTransaction = 1792 // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	readOnlyServer      = 1836 // ER_READ_ONLY_MODE
	readOnlyMode        = 1874 // ER_INNODB_READ_ONLY
	readOnlySchema      = 3989 // ER_SCHEMA_READ_ONLY: ALTER SCHEMA … READ ONLY = 1, on MySQL
	connectionKilled    = 1927 // ER_CONNECTION_KILLED, on MariaDB
	sessionKilled       = 3169 // ER_SESSION_WAS_KILLED, on MySQL
	idleTooLong         = 4031 // ER_CLIENT_INTERACTION_TIMEOUT, on MySQL: it ended the connection before the statement came
	tooManyOfUser       = 1203 // ER_TOO_MANY_USER_CONNECTIONS
	userLimitReached    = 1226 // ER_USER_LIMIT_REACHED: max_user_connections, max_queries_per_hour and so on
	hostBlocked         = 1129 // ER_HOST_IS_BLOCKED
	hostNotPrivileged   = 1130 // ER_HOST_NOT_PRIVILEGED
	accessDenied        = 1045 // ER_ACCESS_DENIED_ERROR: a password that has changed
	noPassword          = 1698 // ER_ACCESS_DENIED_NO_PASSWORD_ERROR
	mustChangePassword  = 1820 // ER_MUST_CHANGE_PASSWORD
	passwordExpired     = 1862 // ER_MUST_CHANGE_PASSWORD_LOGIN
	accountLocked       = 3118 // ER_ACCOUNT_HAS_BEEN_LOCKED
	diskFull            = 1021 // ER_DISK_FULL
	outOfMemory         = 1037 // ER_OUTOFMEMORY
	outOfSortMemory     = 1038 // ER_OUT_OF_SORTMEMORY: sort_buffer_size
	outOfResources      = 1041 // ER_OUT_OF_RESOURCES
	tableFull           = 1114 // ER_RECORD_FILE_FULL
	notPrepared         = 1047 // ER_UNKNOWN_COM_ERROR: a node of a cluster that is not part of it

	// The savepoint is not there: nor is the transaction that set it, perhaps.
	noSuchSavepoint = 1305 // ER_SP_DOES_NOT_EXIST

	// The tables are not there.
	UnknownDatabase = 1049 // ER_BAD_DB_ERROR
	NoSuchColumn    = 1054 // ER_BAD_FIELD_ERROR
	NoSuchTable     = 1146 // ER_NO_SUCH_TABLE
	NoSuchIndex     = 1176 // ER_KEY_DOES_NOT_EXITS, as it is spelled
	NotPermitted    = 1142 // ER_TABLEACCESS_DENIED_ERROR

	// The user may not.
	databaseDenied = 1044 // ER_DBACCESS_DENIED_ERROR
	tableDenied    = 1142 // ER_TABLEACCESS_DENIED_ERROR
	columnDenied   = 1143 // ER_COLUMNACCESS_DENIED_ERROR

	// What was to be written is to blame.
	cannotBeNull          = 1048 // ER_BAD_NULL_ERROR
	duplicateEntry        = 1062 // ER_DUP_ENTRY
	packetTooLarge        = 1153 // ER_NET_PACKET_TOO_LARGE
	outOfRange            = 1264 // ER_WARN_DATA_OUT_OF_RANGE
	fieldHasNoDefault     = 1364 // ER_NO_DEFAULT_FOR_FIELD
	incorrectStringValue  = 1366 // ER_TRUNCATED_WRONG_VALUE_FOR_FIELD
	dataTooLong           = 1406 // ER_DATA_TOO_LONG
	triggerCausedConflict = 1442 // ER_CANT_UPDATE_USED_TABLE_IN_SF_OR_TRG
	rowIsReferenced       = 1451 // ER_ROW_IS_REFERENCED_2
	constraintFails       = 1452 // ER_NO_REFERENCED_ROW_2
	unhandledUserSignal   = 1644 // ER_SIGNAL_EXCEPTION: a trigger's SIGNAL
	valueOutOfRange       = 1690 // ER_DATA_OUT_OF_RANGE
	checkViolated         = 3819 // ER_CHECK_CONSTRAINT_VIOLATED, on MySQL
	checkViolatedMariaDB  = 4025 // ER_CONSTRAINT_FAILED, on MariaDB
)

// handlerDeadlock is how the text of cantCommit names HA_ERR_LOCK_DEADLOCK. After any other text, or the same in another
// lc_messages, the outcome is unknown.
const handlerDeadlock = " error 149 "

// serializationFailure is the SQLSTATE of what gave way to others, whatever its number:
// https://dev.mysql.com/doc/mysql-errors/8.4/en/error-message-elements.html.
const serializationFailure = "40001"

// classUser is of the SQLSTATEs that are left to SIGNAL.
const classUser = "45"
