package sqlerr

// meaning holds the classes of a code: for a statement that may have written, and for one that left
// nothing written.
type meaning struct{ maybeWritten, unwritten Class }

// always returns a meaning with the same class in both cases.
func always(c Class) meaning { return meaning{c, c} }

func (m meaning) class(unwritten bool) Class {
	if unwritten {
		return m.unwritten
	}
	return m.maybeWritten
}

// states holds the SQLSTATEs of Postgres that differ from their class, from
// https://www.postgresql.org/docs/current/errcodes-appendix.html#ERRCODES-TABLE.
var states = map[string]meaning{
	"23505": always(Duplicate),    // unique_violation
	"25006": always(Unavailable),  // read_only_sql_transaction: a standby, for example
	"26000": always(Unavailable),  // invalid_sql_statement_name, after DISCARD ALL
	"57P05": always(Unavailable),  // idle_session_timeout: the session was idle, and ran nothing
	"3F000": always(NoSchema),     // invalid_schema_name
	"40001": always(Retryable),    // serialization_failure
	"40P01": always(Retryable),    // deadlock_detected
	"42501": always(NotPermitted), // insufficient_privilege
	"42P01": always(NoSchema),     // undefined_table
	"53200": always(Overloaded),   // out_of_memory: as a rule max_locks_per_transaction
	"55P03": always(Busy),         // lock_not_available: NOWAIT or lock_timeout
	"57014": always(Busy),         // query_canceled: statement_timeout or an administrator
}

// stateClasses holds every class of SQLSTATEs that Postgres uses. A trigger has chosen any other.
var stateClasses = map[string]meaning{
	"00": always(Unclassified),      // successful completion.
	"01": always(Unclassified),      // warning.
	"02": always(Unclassified),      // no data.
	"03": always(Unclassified),      // SQL statement not yet complete.
	"08": {Unresolved, Unavailable}, // connection exception.
	"09": always(Unclassified),      // triggered action exception.
	"0A": always(Unclassified),      // feature not supported.
	"0B": always(Unclassified),      // invalid transaction initiation.
	"0F": always(Unclassified),      // locator exception.
	"0L": always(Unclassified),      // invalid grantor.
	"0P": always(Unclassified),      // invalid role specification.
	"0Z": always(Unclassified),      // diagnostics exception.
	"20": always(Unclassified),      // case not found.
	"21": always(Unclassified),      // cardinality violation.
	"22": always(BadInput),          // data exception.
	"23": always(BadInput),          // integrity constraint violation.
	"24": always(Unclassified),      // invalid cursor state.
	"25": always(Unclassified),      // invalid transaction state.
	"26": always(Unclassified),      // invalid SQL statement name.
	"27": always(Unclassified),      // triggered data change violation.
	"28": always(Unclassified),      // invalid authorization specification.
	"2B": always(Unclassified),      // dependent privilege descriptors still exist.
	"2D": always(Unclassified),      // invalid transaction termination.
	"2F": always(Unclassified),      // SQL routine exception.
	"34": always(Unclassified),      // invalid cursor name.
	"38": always(Unclassified),      // external routine exception.
	"39": always(Unclassified),      // external routine invocation exception.
	"3B": always(Unclassified),      // savepoint exception.
	"3D": always(Unclassified),      // invalid catalog name.
	"3F": always(Unclassified),      // invalid schema name.
	"40": always(Unclassified),      // transaction rollback, as by a deferred constraint.
	"42": always(Unclassified),      // syntax error or access rule violation.
	"44": always(Unclassified),      // WITH CHECK OPTION violation.
	"53": always(Unavailable),       // insufficient resources: a full disk, too many connections.
	"54": always(Unclassified),      // program limit exceeded.
	"55": always(Unclassified),      // object not in prerequisite state.
	"57": {Unresolved, Unavailable}, // operator intervention: a shutdown, a crash.
	"58": {Unresolved, Unavailable}, // system error: the server cannot read or write its files.
	"72": always(Unclassified),      // snapshot failure.
	"F0": always(Unclassified),      // configuration file error.
	"HV": always(Unclassified),      // foreign data wrapper error.
	"P0": always(BadInput),          // PL/pgSQL error: a trigger's RAISE.
	"XX": always(Unclassified),      // internal error.
}

// OfState returns the class of an SQLSTATE of Postgres. unwritten reports that the statement left
// nothing written. After most errors the transaction is rolled back for certain; a shutdown may
// come while a commit waits for a replica. The code may be shorter than five characters if the
// server is not Postgres.
func OfState(code string, unwritten bool) Class {
	if m, ok := states[code]; ok {
		return m.class(unwritten)
	}
	if m, ok := stateClasses[code[:min(2, len(code))]]; ok {
		return m.class(unwritten)
	}
	return BadInput
}
