package sqlerr

// numbers holds the error numbers that dblock distinguishes. Those of both servers and of MySQL
// alone are from https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html, where
// number n is at #error_er_…. Those of MariaDB alone are from
// https://mariadb.com/kb/en/mariadb-error-code-reference/, where number n is at /kb/en/e<n>/.
var numbers = map[uint16]meaning{
	// The transaction gave way to others: it is rolled back.
	1020: always(Retryable), // ER_CHECKREAD: MariaDB with innodb_snapshot_isolation
	1213: always(Retryable), // ER_LOCK_DEADLOCK
	3101: always(Retryable), // ER_TRANSACTION_ROLLBACK_DURING_COMMIT: a group refused it

	// A lock was not available in time. The statement is rolled back and the transaction stands,
	// unless innodb_rollback_on_timeout is on:
	// https://dev.mysql.com/doc/refman/8.4/en/innodb-error-handling.html.
	1205: always(Busy), // ER_LOCK_WAIT_TIMEOUT; on MariaDB NOWAIT's, too
	3572: always(Busy), // ER_LOCK_NOWAIT: NOWAIT found the row locked, on MySQL

	// The table of locks is full: the transaction is rolled back.
	1206: always(Overloaded), // ER_LOCK_TABLE_FULL

	// A statement took too long, or an administrator ended it. A commit that waited for a replica
	// may stand.
	1317: {Unresolved, Busy}, // ER_QUERY_INTERRUPTED
	1969: {Unresolved, Busy}, // ER_STATEMENT_TIMEOUT, on MariaDB
	3024: {Unresolved, Busy}, // ER_QUERY_TIMEOUT, on MySQL

	// The connection ended.
	1053: {Unresolved, Unavailable}, // ER_SERVER_SHUTDOWN
	1180: {Unresolved, Unavailable}, // ER_ERROR_DURING_COMMIT: see internal/mysql for Retryable
	1927: {Unresolved, Unavailable}, // ER_CONNECTION_KILLED, on MariaDB
	3169: {Unresolved, Unavailable}, // ER_SESSION_WAS_KILLED, on MySQL
	4031: always(Unavailable),       // ER_CLIENT_INTERACTION_TIMEOUT, on MySQL: it was idle

	// The server takes no connection.
	1040: always(Unavailable), // ER_CON_COUNT_ERROR
	1045: always(Unavailable), // ER_ACCESS_DENIED_ERROR: a password that has changed
	1047: always(Unavailable), // ER_UNKNOWN_COM_ERROR: a node of a cluster that is not part of it
	1129: always(Unavailable), // ER_HOST_IS_BLOCKED
	1130: always(Unavailable), // ER_HOST_NOT_PRIVILEGED
	1203: always(Unavailable), // ER_TOO_MANY_USER_CONNECTIONS
	1226: always(Unavailable), // ER_USER_LIMIT_REACHED: max_user_connections and others
	1698: always(Unavailable), // ER_ACCESS_DENIED_NO_PASSWORD_ERROR
	1820: always(Unavailable), // ER_MUST_CHANGE_PASSWORD
	1862: always(Unavailable), // ER_MUST_CHANGE_PASSWORD_LOGIN.
	3032: always(Unavailable), // ER_SERVER_OFFLINE_MODE, on MySQL
	3118: always(Unavailable), // ER_ACCOUNT_HAS_BEEN_LOCKED, on MySQL
	3159: always(Unavailable), // ER_SECURE_TRANSPORT_REQUIRED, on MySQL
	4151: always(Unavailable), // ER_ACCOUNT_HAS_BEEN_LOCKED, on MariaDB

	// The server takes no writes.
	1290: always(Unavailable), // ER_OPTION_PREVENTS_STATEMENT: --read-only
	1792: always(Unavailable), // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	1836: always(Unavailable), // ER_READ_ONLY_MODE
	1874: always(Unavailable), // ER_INNODB_READ_ONLY
	3989: always(Unavailable), // ER_SCHEMA_READ_ONLY: ALTER SCHEMA … READ ONLY = 1, on MySQL

	// The server has no capacity left.
	1021: always(Unavailable), // ER_DISK_FULL
	1037: always(Unavailable), // ER_OUTOFMEMORY
	1038: always(Unavailable), // ER_OUT_OF_SORTMEMORY: sort_buffer_size
	1041: always(Unavailable), // ER_OUT_OF_RESOURCES
	1114: always(Unavailable), // ER_RECORD_FILE_FULL

	// The tables, or a column of them, do not exist.
	1049: always(NoSchema), // ER_BAD_DB_ERROR
	1054: always(NoSchema), // ER_BAD_FIELD_ERROR
	1146: always(NoSchema), // ER_NO_SUCH_TABLE

	// The user lacks a privilege.
	1044: always(NotPermitted), // ER_DBACCESS_DENIED_ERROR
	1142: always(NotPermitted), // ER_TABLEACCESS_DENIED_ERROR
	1143: always(NotPermitted), // ER_COLUMNACCESS_DENIED_ERROR
	1227: always(NotPermitted), // ER_SPECIFIC_ACCESS_DENIED_ERROR
	1370: always(NotPermitted), // ER_PROCACCESS_DENIED_ERROR

	// The key exists.
	1062: always(Duplicate), // ER_DUP_ENTRY

	// The values to write are refused.
	1048: always(BadInput), // ER_BAD_NULL_ERROR
	1153: always(BadInput), // ER_NET_PACKET_TOO_LARGE
	1172: always(BadInput), // ER_TOO_MANY_ROWS, of a trigger
	1242: always(BadInput), // ER_SUBQUERY_NO_1_ROW, of a trigger
	1264: always(BadInput), // ER_WARN_DATA_OUT_OF_RANGE
	1265: always(BadInput), // WARN_DATA_TRUNCATED
	1292: always(BadInput), // ER_TRUNCATED_WRONG_VALUE
	1364: always(BadInput), // ER_NO_DEFAULT_FOR_FIELD
	1365: always(BadInput), // ER_DIVISION_BY_ZERO
	1366: always(BadInput), // ER_TRUNCATED_WRONG_VALUE_FOR_FIELD
	1406: always(BadInput), // ER_DATA_TOO_LONG
	1442: always(BadInput), // ER_CANT_UPDATE_USED_TABLE_IN_SF_OR_TRG
	1451: always(BadInput), // ER_ROW_IS_REFERENCED_2
	1452: always(BadInput), // ER_NO_REFERENCED_ROW_2
	1644: always(BadInput), // ER_SIGNAL_EXCEPTION: a trigger's SIGNAL
	1690: always(BadInput), // ER_DATA_OUT_OF_RANGE
	3140: always(BadInput), // ER_INVALID_JSON_TEXT
	3819: always(BadInput), // ER_CHECK_CONSTRAINT_VIOLATED, on MySQL
	4025: always(BadInput), // ER_CONSTRAINT_FAILED, on MariaDB
}

// numberStates holds the SQLSTATEs of MySQL and MariaDB that decide, whatever the number:
// https://dev.mysql.com/doc/mysql-errors/8.4/en/error-message-elements.html.
var numberStates = map[string]meaning{
	"40001": always(Retryable), // serialization failure, whatever a proxy or a cluster calls it
	"45":    always(BadInput),  // the class that is left to a trigger's SIGNAL
}

// OfNumber returns the class of an error number of MySQL or MariaDB with its SQLSTATE. unwritten
// reports that the statement left nothing written. After all errors but a lost connection and an
// interrupted commit the transaction is rolled back for certain.
func OfNumber(number uint16, state string, unwritten bool) Class {
	m := numbers[number]
	if m == always(Retryable) {
		return Retryable
	}
	for _, code := range []string{state, state[:min(2, len(state))]} {
		if decided, ok := numberStates[code]; ok {
			return decided.class(unwritten)
		}
	}
	return m.class(unwritten)
}
