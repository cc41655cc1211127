package sqlerr

import "testing"

// TestOfState has a row for each SQLSTATE and each class of SQLSTATEs that the tables hold.
func TestOfState(t *testing.T) {
	t.Parallel()
	rows := map[string]meaning{
		"23505": {Duplicate, Duplicate},       // unique_violation
		"25006": {Unavailable, Unavailable},   // read_only_sql_transaction
		"26000": {Unavailable, Unavailable},   // invalid_sql_statement_name
		"3F000": {NoSchema, NoSchema},         // invalid_schema_name
		"40001": {Retryable, Retryable},       // serialization_failure
		"40P01": {Retryable, Retryable},       // deadlock_detected
		"42P01": {NoSchema, NoSchema},         // undefined_table
		"53200": {Overloaded, Overloaded},     // out_of_memory
		"55P03": {Busy, Busy},                 // lock_not_available
		"57014": {Busy, Busy},                 // query_canceled
		"00":    {Unclassified, Unclassified}, // successful completion
		"01":    {Unclassified, Unclassified}, // warning
		"02":    {Unclassified, Unclassified}, // no data
		"03":    {Unclassified, Unclassified}, // SQL statement not yet complete
		"08":    {Unresolved, Unavailable},    // connection exception
		"09":    {Unclassified, Unclassified}, // triggered action exception
		"0A":    {Unclassified, Unclassified}, // feature not supported
		"0B":    {Unclassified, Unclassified}, // invalid transaction initiation
		"0F":    {Unclassified, Unclassified}, // locator exception
		"0L":    {Unclassified, Unclassified}, // invalid grantor
		"0P":    {Unclassified, Unclassified}, // invalid role specification
		"0Z":    {Unclassified, Unclassified}, // diagnostics exception
		"20":    {Unclassified, Unclassified}, // case not found
		"21":    {Unclassified, Unclassified}, // cardinality violation
		"22":    {BadInput, BadInput},         // data exception
		"23":    {BadInput, BadInput},         // integrity constraint violation
		"24":    {Unclassified, Unclassified}, // invalid cursor state
		"25":    {Unclassified, Unclassified}, // invalid transaction state
		"26":    {Unclassified, Unclassified}, // invalid SQL statement name
		"27":    {Unclassified, Unclassified}, // triggered data change violation
		"28":    {Unclassified, Unclassified}, // invalid authorization specification
		"2B":    {Unclassified, Unclassified}, // dependent privilege descriptors still exist
		"2D":    {Unclassified, Unclassified}, // invalid transaction termination
		"2F":    {Unclassified, Unclassified}, // SQL routine exception
		"34":    {Unclassified, Unclassified}, // invalid cursor name
		"38":    {Unclassified, Unclassified}, // external routine exception
		"39":    {Unclassified, Unclassified}, // external routine invocation exception
		"3B":    {Unclassified, Unclassified}, // savepoint exception
		"3D":    {Unclassified, Unclassified}, // invalid catalog name
		"3F":    {Unclassified, Unclassified}, // invalid schema name
		"40":    {Unclassified, Unclassified}, // transaction rollback
		"42":    {Unclassified, Unclassified}, // syntax error or access rule violation
		"44":    {Unclassified, Unclassified}, // WITH CHECK OPTION violation
		"53":    {Unavailable, Unavailable},   // insufficient resources
		"54":    {Unclassified, Unclassified}, // program limit exceeded
		"55":    {Unclassified, Unclassified}, // object not in prerequisite state
		"57":    {Unresolved, Unavailable},    // operator intervention
		"58":    {Unresolved, Unavailable},    // system error
		"72":    {Unclassified, Unclassified}, // snapshot failure
		"F0":    {Unclassified, Unclassified}, // configuration file error
		"HV":    {Unclassified, Unclassified}, // foreign data wrapper error
		"P0":    {BadInput, BadInput},         // PL/pgSQL error
		"XX":    {Unclassified, Unclassified}, // internal error

		// What a trigger chooses, and what is too short.
		"45000": always(BadInput), "MY001": always(BadInput), "X": always(BadInput), "": always(BadInput),
	}
	for code, want := range rows {
		if got := (meaning{OfState(code, false), OfState(code, true)}); got != want {
			t.Errorf("%s: it is %v, want %v", code, got, want)
		}
	}
	for code := range states {
		if _, ok := rows[code]; !ok {
			t.Errorf("%s has no row", code)
		}
	}
	for class := range stateClasses {
		if _, ok := rows[class]; !ok {
			t.Errorf("class %s has no row", class)
		}
	}
}

// TestOfNumber has a row for each number that the table holds.
func TestOfNumber(t *testing.T) {
	t.Parallel()
	rows := map[uint16]meaning{
		1020: {Retryable, Retryable},     // ER_CHECKREAD
		1213: {Retryable, Retryable},     // ER_LOCK_DEADLOCK
		3101: {Retryable, Retryable},     // ER_TRANSACTION_ROLLBACK_DURING_COMMIT
		1205: {Busy, Busy},               // ER_LOCK_WAIT_TIMEOUT
		3572: {Busy, Busy},               // ER_LOCK_NOWAIT
		1206: {Overloaded, Overloaded},   // ER_LOCK_TABLE_FULL
		1317: {Unresolved, Busy},         // ER_QUERY_INTERRUPTED
		1969: {Unresolved, Busy},         // ER_STATEMENT_TIMEOUT
		3024: {Unresolved, Busy},         // ER_QUERY_TIMEOUT
		1053: {Unresolved, Unavailable},  // ER_SERVER_SHUTDOWN
		1180: {Unresolved, Unavailable},  // ER_ERROR_DURING_COMMIT
		1927: {Unresolved, Unavailable},  // ER_CONNECTION_KILLED
		3169: {Unresolved, Unavailable},  // ER_SESSION_WAS_KILLED
		4031: {Unavailable, Unavailable}, // ER_CLIENT_INTERACTION_TIMEOUT
		1040: {Unavailable, Unavailable}, // ER_CON_COUNT_ERROR
		1045: {Unavailable, Unavailable}, // ER_ACCESS_DENIED_ERROR
		1047: {Unavailable, Unavailable}, // ER_UNKNOWN_COM_ERROR
		1129: {Unavailable, Unavailable}, // ER_HOST_IS_BLOCKED
		1130: {Unavailable, Unavailable}, // ER_HOST_NOT_PRIVILEGED
		1203: {Unavailable, Unavailable}, // ER_TOO_MANY_USER_CONNECTIONS
		1226: {Unavailable, Unavailable}, // ER_USER_LIMIT_REACHED
		1698: {Unavailable, Unavailable}, // ER_ACCESS_DENIED_NO_PASSWORD_ERROR
		1820: {Unavailable, Unavailable}, // ER_MUST_CHANGE_PASSWORD
		1862: {Unavailable, Unavailable}, // ER_MUST_CHANGE_PASSWORD_LOGIN
		3118: {Unavailable, Unavailable}, // ER_ACCOUNT_HAS_BEEN_LOCKED
		1290: {Unavailable, Unavailable}, // ER_OPTION_PREVENTS_STATEMENT
		1792: {Unavailable, Unavailable}, // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
		1836: {Unavailable, Unavailable}, // ER_READ_ONLY_MODE
		1874: {Unavailable, Unavailable}, // ER_INNODB_READ_ONLY
		3989: {Unavailable, Unavailable}, // ER_SCHEMA_READ_ONLY
		1021: {Unavailable, Unavailable}, // ER_DISK_FULL
		1037: {Unavailable, Unavailable}, // ER_OUTOFMEMORY
		1038: {Unavailable, Unavailable}, // ER_OUT_OF_SORTMEMORY
		1041: {Unavailable, Unavailable}, // ER_OUT_OF_RESOURCES
		1114: {Unavailable, Unavailable}, // ER_RECORD_FILE_FULL
		1049: {NoSchema, NoSchema},       // ER_BAD_DB_ERROR
		1146: {NoSchema, NoSchema},       // ER_NO_SUCH_TABLE
		1062: {Duplicate, Duplicate},     // ER_DUP_ENTRY
		1048: {BadInput, BadInput},       // ER_BAD_NULL_ERROR
		1153: {BadInput, BadInput},       // ER_NET_PACKET_TOO_LARGE
		1264: {BadInput, BadInput},       // ER_WARN_DATA_OUT_OF_RANGE
		1364: {BadInput, BadInput},       // ER_NO_DEFAULT_FOR_FIELD
		1366: {BadInput, BadInput},       // ER_TRUNCATED_WRONG_VALUE_FOR_FIELD
		1406: {BadInput, BadInput},       // ER_DATA_TOO_LONG
		1442: {BadInput, BadInput},       // ER_CANT_UPDATE_USED_TABLE_IN_SF_OR_TRG
		1451: {BadInput, BadInput},       // ER_ROW_IS_REFERENCED_2
		1452: {BadInput, BadInput},       // ER_NO_REFERENCED_ROW_2
		1644: {BadInput, BadInput},       // ER_SIGNAL_EXCEPTION
		1690: {BadInput, BadInput},       // ER_DATA_OUT_OF_RANGE
		3819: {BadInput, BadInput},       // ER_CHECK_CONSTRAINT_VIOLATED
		4025: {BadInput, BadInput},       // ER_CONSTRAINT_FAILED

		1: always(Unclassified), 1105: always(Unclassified), 3058: always(Unclassified), 65535: always(Unclassified),
	}
	for number, want := range rows {
		if got := (meaning{OfNumber(number, "HY000", false), OfNumber(number, "HY000", true)}); got != want {
			t.Errorf("%d: it is %v, want %v", number, got, want)
		}
		for state, decided := range map[string]Class{"40001": Retryable, "45000": BadInput, "45XYZ": BadInput} {
			if want == always(Retryable) {
				decided = Retryable
			}
			if got := (meaning{OfNumber(number, state, false), OfNumber(number, state, true)}); got != always(decided) {
				t.Errorf("%d with SQLSTATE %s: it is %v, want %v", number, state, got, decided)
			}
		}
	}
	for number := range numbers {
		if _, ok := rows[number]; !ok {
			t.Errorf("%d has no row", number)
		}
	}
}
