// Package optimistic holds the suites of updates by version, of tables without generated queries,
// and of RunTx.
//
// # Updates
//
//   - RepeatsOnWhatIsThere: An update that met another one is repeated on the row as it is.
//   - ControlOverwritesBlindly: Without the version the other update is lost.
//   - TellsStaleFromGone: The error tells a row that changed from a row that is gone.
//   - UpdatesFromZero: Versions may begin at 0.
//   - CountsOnOneRow: Concurrent updates of one row lose none.
//   - IsACASRegister: What callers see of a row is linearizable.
//   - ControlIsNoCASRegister: Without the version it is not.
//   - OneAttemptInACallersTx: In a caller's transaction a conflict is returned after one attempt.
//   - EscalatesAndGetsThrough: With Escalate a besieged update locks the row and succeeds.
//   - ControlGivesUpWithoutTheLock: Without Escalate it gives up.
//   - DoWritesAllOrNothing: Do writes all rows or none.
//   - NestedInOppositeOrders: Nested updates in opposite orders succeed.
//   - DoRollsBackAPanic: Do rolls back when its function panics.
//   - TakesNoMoreRoundTrips: An update costs the two statements that it costs by hand.
//   - AnUpdateCutAnywhere: The answer of an update is true wherever its connection breaks.
//   - AnEscalatedUpdateCutAnywhere: The same with the row's lock.
//   - ControlWritesTwice: A repeat after every error writes twice.
//   - CountsOnManyRows: Concurrent updates of many rows lose none.
//
// # Tables
//
//   - Contract: Every kind of version keeps the contract.
//   - InTransactions: Calls work in a caller's transaction.
//   - AtAnyIsolation: A stale write never succeeds, at any isolation level.
//   - CountsStatements: Each call costs the documented statements.
//   - TimesGrow: A time version grows although the clock does not.
//   - Recreated: A row that is deleted and inserted again is another one, except for integers.
//   - NamesAreTakenAsTheyAre: Names with quotes and keywords are taken literally.
//   - RefusesBadInput: Bad input is refused without a statement.
//   - RefusesBadTables: An unfit table is refused before a write, with what to do.
//   - AltersAsTold: A column that is altered as the error says is accepted.
//   - RefusesBadVersions: A row with the version 0 or NULL is not written, with the reason.
//   - NonUniqueKey: A key of two rows writes neither.
//   - ChecksOnce: A passed check of a table is kept, a failed one is not.
//   - Altered: With a column's new type a write stores the value, or fails once and then does.
//   - AlteredVersion: An expected value is never cut to the old type of an altered column.
//   - AlteredFacts: A table is refused for what it can no longer do.
//   - Columns: Only the named columns are compared, NULL as a value and texts by byte.
//   - ColumnsOfAllTypes: Values of every type can be given back as expected.
//   - ColumnsEqualValues: A write of equal values succeeds, and a stale one does not.
//   - Triggers: A write returns the row's version whatever triggers insert.
//   - TriggersOnColumns: The same for compared columns.
//   - BlindWritesOfOneRow: Concurrent blind writes each return a version of their own.
//   - Upsert: Upsert inserts a new row, or updates the version that is expected.
//   - UpsertAnotherIndex: A row that another unique index refuses is left alone.
//   - UpsertRace: Of concurrent inserts one succeeds, and the others are conflicts.
//   - VersionsFromZero: Rows at version 0 are written like others.
//   - Many: UpdateMany returns a verdict for each row, or writes none.
//   - ManyBadInput: Bad input of UpdateMany is refused.
//   - ManyTypes: Each row gets its own values, in columns of all types.
//   - ManyWritesTheSame: UpdateMany writes what Update writes, and refuses what it refuses.
//   - ManyNeverDeadlock: Concurrent calls for the same rows never deadlock.
//   - ManyInTransactions: The caller commits; a refused call leaves its transaction usable.
//   - IncrementsOneRow: Concurrent increments of a row lose none.
//   - IncrementsMany: Concurrent increments of three rows change all or none.
//   - ControlIncrementsAreLost: Without the version increments are lost.
//   - IncrementsByColumns: Increments by the balance itself lose none.
//   - ARepeatIsWrittenOnce: A repeated write of unknown outcome is written once.
//   - AWriteCutAnywhere: The answer of each write is true wherever its connection breaks.
//   - ControlARepeatIsTakenForOthers: A repeat after every error meets its own write.
//   - IncrementsThousandRows: Concurrent updates of 1,000 rows lose no increment.
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
//   - LosesNoUpdates: Concurrent read-and-write functions lose no update.
//   - PinsItsIsolation: The isolation level is the one asked for, not the session's default.
//   - LeaksNoIsolation: The next user of the connection has its own level.
//   - WritesWhateverTheDefault: A session that is read-only by default writes.
//   - RefusesWrites: A read-only transaction refuses writes.
//   - ASwallowedConflict: A function that ignores a conflict does not commit.
//   - ControlSwallows: On MySQL the usual code by hand commits half of it.
//   - EndedByItsFunction: A function that ends its transaction itself gets an error.
//   - EndsWithItsContext: The transaction ends with its context.
//   - PoolsNoBrokenConnection: A connection that was killed is not given out again.
//   - ALockTimeoutIsItsCaller's: A lock timeout is returned as it is, after one attempt.
//   - TxRefusesWhatMakesNoSense: Bad options are refused.
//   - ACommitCutAnywhere: The answer is true wherever the connection breaks; no unknown is repeated.
package optimistic
