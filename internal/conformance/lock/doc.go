// Package lock holds the suite of leases, and those of row locks, recipes and quorums.
//
// # Every lease, on a database or in memory
//
//   - Excludes: Two callers never hold a key at the same time, of two processes or of one.
//   - WakesAnotherProcess: A waiter of another process is woken long before its poll is due.
//   - AWaitEndsWithItsContext: A wait returns when its context ends, and leaves nothing behind.
//   - KeepsWhatIsInUse: A lock outlives its TTL while its process sends heartbeats.
//   - EndsWhenItsTimeIsUp: A lock with a fixed end is lost at that end, and its context ends.
//   - LastsWithoutItsProcess: A lock with a fixed end outlives the process that took it.
//   - TakesOverFromTheDead: The key of a process that died is free after the TTL.
//   - NeverWaitsForItself: Acquiring a key that the context holds is a deadlock, unless reentrant.
//   - KeysAreBytes: Keys that differ in one byte are different keys.
//   - RefusesWhatMakesNoSense: Bad keys, durations and options are refused without a statement.
//   - ShowsWhoHoldsWhat: Held lists each key with its holder, mode, token and data.
//   - ShowsOneHolder: Holder shows the holder of a key, or one of several, with mode and data.
//   - CloseGivesBack: Close frees what the process holds.
//   - NothingWorksAfterClose: Every method of a closed Locker returns ErrClosed.
//   - AnEndedContextSendsNothing: With an ended context the error is the context's, and certain.
//   - ErrorsSayWhatIsKnown: The error of a refused call names a holder only if one is known.
//   - SweepsWhatNobodyUses: A sweep deletes keys that are unused for long enough, and no others.
//   - TellsTheObserver: The Observer is called for each acquisition, wait, release and loss.
//   - OneSweepsAtATime: One process sweeps at a time, and another one takes over when it is gone.
//   - AStolenLockIsLost: After ForceRelease the holder loses the lock within the TTL.
//   - ALostMemberLosesAllAndJoinsAnew: A process without its row loses its locks and joins anew.
//   - HoldsForAnyTime: An end is refused, or the lock has it, however far away it is.
//   - AcquiresAll: AcquireAll gets every key of a set, or none.
//   - RefusesBadSets: A set with bad or repeated keys is refused, and a set never waits for itself.
//   - AllAreLost: A set is lost with one of its keys, and with its process.
//   - SetsAmongReaders: A set waits for the readers of one of its keys.
//   - ServesInOrder: A fair Locker serves several processes in order, also if some give up.
//   - FairAmongOthers: A fair Locker survives the dead, keeps deadlines, and refuses modes.
//   - ReadersShare: Readers of two processes hold a key together, and a writer waits for all.
//   - WaitsForReaders: A waiting writer keeps new readers out until it gives up.
//   - AWriterIsLetIn: A writer gets its turn although readers come and go without a gap.
//   - DeadReadersGiveWay: Readers that die, or whose time runs out, keep no writer out.
//   - ADeadWriterLeavesReaders: After a waiting writer died, the next one still waits for readers.
//   - ReadersDontUpgrade: A reader that asks for the exclusive lock below its own is refused.
//   - ReadersDontWait: Readers of one process all hold a key before one of them ends.
//   - GuardsReaders: A guard checks a shared lock.
//   - ShowsReaders: Held lists readers, and ForceRelease ends one.
//   - ASweepLeavesReaders: A sweep deletes a key that was read, and none that is being read.
//   - PermitsAreLimited: A semaphore grants its permits, and no more.
//   - RefusesOtherLimits: A number of permits that differs from the semaphore's is refused.
//   - ChangesItsPermits: SetPermits changes a semaphore in use, up and down.
//   - FewerPermitsAreFewer: Holders of a larger number of permits count against a smaller one.
//   - TheDeadGivePermitsBack: Permits of the dead, and those whose time is up, are free.
//   - AWaitForPermitsEnds: A wait for permits ends with its context, fair or not.
//   - EachModeKeepsItsPromises: Each mode has release, ForceRelease of its token, ExpireIn, Held,
//     tokens and reentrance.
//
// # Leases on a database
//
//   - AGuardFencesOff: A guarded write fails after its process lost the lease.
//   - AGuardKeepsOthersOut: No process takes over a lease while a guarded transaction is open.
//   - ExpiresAllOrNothing: ExpireIn of a set writes every row or none.
//   - EndsBeforeTheServer: The holder's end is a margin earlier than the server's, in each way.
//   - AForgottenGrantIsLost: A grant that a failover lost is lost for its holder as well.
//   - AForgottenReleaseIsRepeated: A release that a failover lost is repeated, in each mode.
//   - AGuardedTxOfAnEndedLockIsLost: GuardedTx of an ended lock says that it was lost or released.
//   - ARefusedGuardEndsTheLock: A guard that is fenced off ends the lock before the next heartbeat.
//   - UsesASchemaOfTheHostsChoice: Leases work in a schema outside the connection's path.
//   - ChecksTheTables: A Locker opens only over whole tables, and over connections that commit.
//   - CostsFewRoundTrips: A known free key costs one statement, a new key two, a release one.
//   - ARaisedFenceKeepsOthersOut: After the next holder raised a fence, the prior one cannot write.
//   - RunsWithTheDocumentedGrants: Every call works with the rights of docs/grants.md.
//   - OperatorsOfLocksNeedTheirGrants: An operator's commands need each documented right.
//   - EndsWhoStopsInAGuard: The server ends a guarded transaction whose process stopped.
//   - NeverCommitsWhatIsLost: GuardedTx does not commit after the lock is lost, and says ErrLost.
//   - OneLockedRowStallsNobody: A lease under a guard delays no other key of the same statement.
//   - ARefusalWritesNothing: A refused acquisition changes no row and writes no log on the server.
//   - ASiblingOutlivesAnother: Closing one of two Lockers of a pool leaves the other's locks alone.
//   - ASetIsReleasedAtOnce: A set with a locked row is released as a whole.
//   - ASetIsSeenWhole: A snapshot shows all keys of a set, or none.
//   - ModesCostFewRoundTrips: Readers and permits cost as few statements as exclusive locks.
//   - ReadersRaiseTogether: Readers pass a fence together, until a writer raises it.
//   - CostsOneGrantEach: A grant by ticket has the same price, however many wait.
//   - WhoGivesUpIsServed: A waiter that gives up while it is served releases the lock.
//   - AReleaseBesideAWait: A waiter that a concurrent release did not see is still served.
//   - FreesAllPermits: Permits are freed although one of their rows is locked.
//   - AWriterLeavesNoTrace: After a writer waited, readers of another process get the key at once.
//   - ManyPermitsTakeLittleTime: The largest number of permits is acquired beside other locks.
//   - ALockedTableLeavesNoSession: Calls that give up behind a locked table leave no session.
//   - ALockedRowIsWaitedFor: A key whose row is locked is waited for until the deadline.
//   - ALockedSetIsWaitedFor: A set with a locked row is waited for, and so are fair waits.
//   - ALockedGapIsWaitedFor: A row that cannot be inserted yet is waited for, on MySQL and MariaDB.
//   - LockedPermitsAreWaitedFor: Permits whose rows are locked are waited for.
//   - LockedWaitersStallNoOthers: Locked rows of waiters delay no other process.
//   - FewerPermitsCountOneUnderWay: A smaller limit counts an acquisition that is under way.
//   - ARefusalOfAnyKindIsOneKeys: A key that a trigger refuses, with whatever error, fails alone.
//   - OneBadRowFailsAlone: A row whose token cannot grow fails alone in its batch.
//   - ABadRowStopsNoOther: Rows that dblock never writes stop no other key.
//   - LargeBatchesAreSplit: Locks with much data are acquired and released beside small ones.
//   - ATokenAheadOfTheClock: Tokens grow after the server's clock was set back.
//   - AWaiterServedBesideReaders: A grant by an older version beside a reader harms neither.
//   - AWaitingWriterDied: After a waiting writer died, sets and tickets acquire its key.
//   - OthersGetTheirTurn: A process serves its own waiters for a turn, then those of others.
//
// # Leases under faults
//
//   - ACrowdOfLeases: Thousands of leases are verified, cost a heartbeat one row, are freed by
//     Close in one statement, and are another's once their process is dead.
//   - ACloseCutAnywhere: Close frees all wherever its connection breaks.
//   - ReadersStayOneCrowd: Readers keep one token while writers wait, give up and die.
//   - ServedTooLate: A waiter that is served after its time is up holds nothing without an end.
//   - AFrozenServerHoldsNoCaller: On a frozen server acquisitions, releases and Close return in
//     time.
//
// # Row locks
//
//   - RefusalsLeaveItUsable: After a refusal the transaction keeps its work and its bound of waits.
//   - WaitsForTheirEnd: LockRow waits for the row, or for its context.
//   - StrengthsExclude: Shares coexist, and an update excludes all others.
//   - NamesAreTakenAsTheyAre: Names with quotes, blanks, keywords and a schema are taken literally.
//   - RefusesBadInput: Bad input is refused without a statement.
//   - SaysWhatToDo: The error names the table, column or transaction at fault.
//   - OppositeOrdersNeverMeet: Calls for the same rows in opposite orders never deadlock.
//   - KeysAreReturnedAsGiven: A key is returned as it was given, however its row spells it.
//   - ControlSingleLocksMeet: Rows locked one by one in opposite orders deadlock, a conflict.
//   - ClaimsAreDifferent: Concurrent claims have no row in common, and end with their transactions.
//   - EndsWithRollbackAndCommit: Row locks end with their transaction.
//   - TablesWithoutRowLocks: A table whose rows the server cannot lock is refused before a read.
//   - PartitionsNeverMeet: Calls for rows of several partitions never deadlock.
//   - LocksNoOtherRows: LockRows leaves the other rows of the table free.
//
// # Recipes
//
//   - NumbersHaveNoGaps: Numbers drawn under a lock have no gaps and no repeats, with rollbacks.
//   - ControlNumbersComeTwice: Without the lock numbers repeat.
//   - ControlTeamsGrowTooLarge: Without the lock a team gets too many members.
//   - TeamsStaySmall: With the lock, taken in each way, a team keeps its limit.
//   - ASnapshotIsOlderThanTheLock: At REPEATABLE READ a holder reads what was there before.
//
// # Quorums
//
//   - TestQuorumFaults: With one of three servers down callers are served; with two nothing is
//     granted.
//   - TestQuorumIsRefusedByGuards: A quorum's lock has no token, and guards refuse it.
//   - TestQuorumRefusesWhatForgets: A server that may lose commits is no node; the error says why.
//
// # On Linux
//
//   - ANetworkFallsSilent: A lease is free within the TTL of a cut, after its holder's end.
//
// # Checked elsewhere
//
// TestLocks, TestLocksDense and TestLocksFaults of internal/programs run random programs on each
// engine. Sections of the operating system and porcupine check them. TestControlLocks and
// TestControlDeadlocks are the controls.
//
//   - Callers of several processes exclude each other, in each mode, by sets, fair or not, and
//     however their locks end. So do quorums.
//   - Permits that are held fit their limit, which may change.
//   - Fair callers are served in the order of their tickets.
//   - A key is free after callers that gave up, and after releases beside Close. No row and no
//     goroutine is left.
//   - Locks of leases meet no deadlock at the server.
//   - AdvanceFence and CheckFence refuse a holder after a later one.
//   - Rows that are claimed are updated by one transaction each.
//
// TestFaultsMatrix of internal/faultmatrix checks these promises under its faults. Each has a
// control.
//
//   - Tokens grow, locks exclude, guarded reads and writes are linearizable, and permits fit, while
//     processes and servers are killed, frozen and cut off.
//   - The answer of each call is true wherever its connection breaks, and no key stays held.
//   - A wait ends before its context for want of an answer only.
//
// TestSeeds of internal/locksim simulates thousands of networks. After a loss of any message no
// lock is left, in each mode, and orders and tokens are right. A lock that no heartbeat keeps is
// released after an outage of up to two TTLs. TestMutations is the control.
//
// internal/lease, in memory:
//
//   - Waiters of a process are served in their order, by one statement each
//     (TestACrowdIsServedInLine).
//   - A Log and an Observer that block keep no lock beyond its end
//     (TestAHostThatBlocksKeepsNoLock).
//   - Each Locker of a pool learns of late heartbeats (TestHeartbeatsReachAllLockers).
//
// The root package, in memory:
//
//   - After a leader resigns another process leads (TestElectorResigns).
//   - A guarded transaction leaves nothing in memory (TestRunUnderLeavesNothingBehind).
//   - Quorums keep their promises amid faults (TestQuorumExpireInWithoutAnAnswer,
//     TestQuorumOutlivesARollingRestart, TestQuorumIsLostWithItsMajority).
//     TestControlOneOfThreeMeets is the control.
package lock
