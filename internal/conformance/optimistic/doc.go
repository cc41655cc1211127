// Package optimistic holds the suites of Updates by version, of tables without generated queries,
// and of RunTx.
//
// # Updates by a function
//
//   - Updates: The next ones hold, whatever the settings of the session are.
//   - RepeatsOnWhatIsThere: An update that met another one is repeated on the row as it is.
//   - ControlOverwritesBlindly: Without the version the other update is lost.
//   - OneAttemptInACallersTx: In a caller's transaction a conflict is returned after one attempt.
//   - DoWritesAllOrNothing: Do writes all rows or none.
//   - EscalatesAndGetsThrough: With Escalate a besieged update locks the row and succeeds.
//   - ControlGivesUpWithoutTheLock: Without Escalate it gives up.
//   - NestedInOppositeOrders: Nested Updates in opposite orders succeed.
//   - TakesNoMoreRoundTrips: An update costs the two statements that it costs by hand.
//   - CountsOnRows: Concurrent Updates of one row, and of 1,000 rows, lose none.
//
// # Tables
//
//   - Contract: Random calls return what a model of the table says, for each kind of version.
//   - AtAnyIsolation: A stale write never succeeds, at any isolation level.
//   - CountsStatements: Each call costs the documented statements.
//   - TimesGrow: A time version grows although the clock does not.
//   - NamesAreTakenAsTheyAre: Names with quotes and keywords are taken literally.
//   - RefusesBadInput: Columns and keys that do not fit the table are refused.
//   - RefusesBadTables: An unfit table is refused before a write, with what to do.
//   - AltersAsTold: A column that is Altered as the error says is accepted.
//   - RefusesBadVersions: A row whose version cannot be one is not written, with the reason.
//   - NonUniqueKey: A key of two rows writes neither.
//   - ChecksOnce: A passed check of a table is kept, a failed one is not.
//   - Altered: With a column's new type a write stores the value, or fails once and then does.
//   - AlteredVersion: An expected value is never cut to the old type of an Altered column.
//   - AlteredFacts: A table is refused for what it can no longer do.
//   - BlindWritesOfOneRow: Concurrent blind writes each return a version of their own.
//   - UpsertAnotherIndex: A row that another unique index refuses is left alone.
//   - UpsertRace: Of concurrent inserts one succeeds, and the others are conflicts.
//   - ManyKeys: UpdateMany writes rows by texts and UUIDs, and refuses two keys of one row.
//   - ManyWritesTheSame: UpdateMany writes what Update writes, and refuses what it refuses.
//   - IncrementsRows: Concurrent increments of a row, and of 1,000 rows, lose none.
//   - IncrementsMany: Concurrent increments of three rows change all or none, and never deadlock.
//   - ControlIncrementsAreLost: Without the version increments are lost.
//   - IncrementsByColumns: Increments by the balance itself lose none.
//
// The random calls of Contract are made on a pool and in transactions that commit or roll back,
// with triggers that number rows of their own. Versions are integers from 1 and from 0, times,
// UUIDs, and columns, of which NULL is a value and texts are compared by byte. A deleted and
// reinserted row is another one, except for integers. UpdateMany returns a verdict for each row, or
// writes none. ManyWritesTheSame gives back, as expected, what it has read.
//
// # Both
//
//   - IsACASRegister: What callers see of a row is linearizable; without the version it is not.
//   - AWriteCutAnywhere: The answer of each write is true wherever its connection breaks.
//   - ARepeatIsWrittenOnce: A repeated write of unknown outcome is written once.
//
// # RunTx
//
//   - CommitsOrRollsBack: The transaction commits, or rolls back with the function's error.
//   - APanicRollsBack: A panic of the function rolls back.
//   - RunsAgainAfterADeadlock: The function runs again after a deadlock.
//   - RunsAgainAfterLocksMet: It runs again after row locks of dblock met, too.
//   - GivesUpWithTheConflict: After the last attempt the error is the conflict.
//   - KeepsInvariants: SERIALIZABLE keeps an invariant over two rows.
//   - ControlBreaksInvariants: A lower level breaks it.
//   - PinsItsIsolation: The isolation level is the one asked for, not the session's default.
//   - LeaksNoIsolation: The next user of the connection has its own level.
//   - WritesWhateverTheDefault: A session that is read-only by default writes.
//   - RefusesWrites: A read-only transaction refuses writes.
//   - ASwallowedConflict: A function that ignores a conflict does not commit.
//   - ControlSwallows: On MySQL the usual code by hand commits half of it.
//   - EndedByItsFunction: A function that ends its transaction itself gets an error.
//   - EndsWithItsContext: The transaction ends with its context.
//   - PoolsNoBrokenConnection: A connection that was killed is not given out again.
//   - ALockTimeoutIsItsCallers: A lock timeout is returned as it is, after one attempt.
//   - TxRefusesWhatMakesNoSense: Bad options are refused.
//   - ACommitCutAnywhere: The answer is true wherever the connection breaks; unknown ones stay so.
//
// # Checked elsewhere
//
// Package optimistic tests what needs no driver: bad input is refused without a statement, Diagnose
// distinguishes stale from gone, and versions of a caller's own queries may begin at 0. RunTx rolls
// back a panic (APanicRollsBack), also of Do.
package optimistic
