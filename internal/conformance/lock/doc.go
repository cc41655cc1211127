// Package lock holds the suite of leases, and those of row locks, recipes and quorums.
//
// # Every lease, on a database or in memory
//
//   - Excludes: Two callers never hold a key at the same time.
//   - ExcludesWithinAProcess: Two calls of one process exclude each other, too.
//   - ServesThoseWhoWaitInLine: Waiters of one process get a key in the order in which they came.
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
//   - ShowsOneHolder: Holder shows the holder of one key, and the data it keeps beside it.
//   - ShowsOneOfSeveral: Holder shows one reader or permit of a key, with mode and data.
//   - CloseGivesBack: Close frees what the process holds.
//   - NothingWorksAfterClose: Every method of a closed Locker returns ErrClosed.
//   - AnEndedContextSendsNothing: With an ended context the error is the context's, and certain.
//   - ErrorsSayWhatIsKnown: The error of a refused call names a holder only if one is known.
//   - SweepsWhatNobodyUses: A sweep deletes keys that are unused for long enough, and no others.
//   - ManyProcessesNeverMeet: Of many processes one is inside at a time, and tokens grow.
//   - ControlMeets: Without the lock, the counter sees several inside.
//   - TellsTheObserver: The Observer hears of each acquisition, wait, release and loss.
//   - ForceReleaseWantsTheToken: ForceRelease ends a lock only if its token is given.
//   - OneSweepsAtATime: One process sweeps at a time, and another one takes over when it is gone.
//   - SweepsNoReadersAway: A sweep leaves keys that readers hold, and writers wait for them.
//   - AStolenLockIsLost: After ForceRelease the holder loses the lock within the TTL.
//   - ALostMemberLosesAllAndJoinsAnew: A process without its row loses its locks and joins anew.
//   - HoldsForAnyTime: An end is refused, or the lock has it, however far away it is.
//   - AcquiresAll: AcquireAll gets every key of a set, or none.
//   - RefusesBadSets: A set with bad or repeated keys is refused, and a set never waits for itself.
//   - AllAreLost: A set is lost with one of its keys, and with its process.
//   - SetsAmongReaders: A set waits for the readers of one of its keys.
//   - ServesInOrder: A fair Locker serves several processes in order, also if some give up.
//   - ControlOvertakes: Without tickets a process hands over to its own waiters first.
//   - FairAmongOthers: A fair Locker survives the dead, keeps deadlines, and refuses modes.
//   - FairCrowdIsExclusive: Many tries of a key of a fair Locker, beside a release, grant it once.
//   - FairCrowdIsServed: Several waiters for a key without a row are all served.
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
//   - ShowsPermits: Held lists permits, and ForceRelease ends one.
//   - NeverMoreThanPermitted: Processes never hold more permits than there are.
//   - AWaitForPermitsEnds: A wait for permits ends with its context, fair or not.
//   - EachModeKeepsItsPromises: Each mode has release, ExpireIn, Held, tokens and reentrance.
//
// # Leases on a database
//
//   - AGuardFencesOff: A guarded write fails after its process lost the lease.
//   - AGuardKeepsOthersOut: No process takes over a lease while a guarded transaction is open.
//   - ExpiresAllOrNothing: ExpireIn of a set writes every row or none.
//   - EndsBeforeTheServer: The holder's end is a margin earlier than the server's, in each way.
//   - AForgottenGrantIsLost: A grant that a failover lost is lost for its holder as well.
//   - AGuardedTxOfAnEndedLockIsLost: GuardedTx of an ended lock says that it was lost or released.
//   - AGuardedTxLeavesNothingBehind: A lock keeps nothing of the guarded transactions that it had.
//   - ARefusedGuardEndsTheLock: A guard that is fenced off ends the lock before the next heartbeat.
//   - ABlockedHostKeepsNoLock: A Log and an Observer that block keep no lock beyond its end.
//   - UsesASchemaOfTheHostsChoice: Leases work in a schema outside the connection's path.
//   - ChecksTheTables: A Locker opens only over whole tables, and over connections that commit.
//   - CostsFewRoundTrips: A known free key costs one statement, a new key two, a release one.
//   - ARaisedFenceKeepsOthersOut: After the next holder raised a fence, the prior one cannot write.
//   - RunsWithTheDocumentedGrants: Every call works with the rights of docs/grants.md.
//   - OperatorsOfLocksNeedTheirGrants: An operator's commands need each documented right.
//   - EndsWhoStopsInAGuard: The server ends a guarded transaction whose process stopped.
//   - LosesNothingElsewhere: No update in another database is lost if holders raise its fence.
//   - NeverCommitsWhatIsLost: GuardedTx does not commit after the lock is lost, and says ErrLost.
//   - OneLockedRowStallsNobody: A lease under a guard delays no other key of the same statement.
//   - ARefusalWritesNothing: A refused acquisition changes no row and writes no log on the server.
//   - ASiblingOutlivesAnother: Closing one of two Lockers of a pool leaves the other's locks alone.
//   - ASetIsReleasedAtOnce: A set with a locked row is released as a whole.
//   - ControlHoldsAPart: Keys that are taken one by one are seen as parts of a set.
//   - AResignationHandsOver: After a leader resigns, another process leads and shows its address.
//   - ModesCostFewRoundTrips: Readers and permits cost as few statements as exclusive locks.
//   - ReadersRaiseTogether: Readers pass a fence together, until a writer raises it.
//   - CostsOneGrantEach: A grant by ticket has the same price, however many wait.
//   - WhoGivesUpIsServed: A waiter that gives up while it is served gives the lock back.
//   - AReleaseBesideAWait: A waiter that a concurrent release did not see is still served.
//   - FreesAllPermits: Permits are freed although one of their rows is locked.
//   - AWriterLeavesNoTrace: After a writer waited, readers of another process get the key at once.
//   - ManyPermitsTakeLittleTime: The largest number of permits is acquired beside other locks.
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
//   - AReleaseBesideClose: A release beside Close returns, and the key is free.
//   - HeartbeatsReachAllLockers: Each open Locker of a pool learns of late heartbeats.
//
// # Leases under faults
//
//   - AnAcquireCutAnywhere: An acquisition that is cut has a true answer, and leaves nothing.
//   - AReleaseCutAnywhere: A release takes place wherever its connection breaks.
//   - ACloseCutAnywhere: Close frees all wherever its connection breaks.
//   - ASilentWireEndsWaits: Waits end as documented while connections fall silent.
//   - AnExpireInCutAnywhere: No process acquires a key before its end, wherever ExpireIn is cut.
//   - ACrowdIsVerified: Of many locks the one that was taken away is lost, alone.
//   - APauseBeforeARelease: A process that was stopped releases nothing that another one has.
//   - AReaderCutAnywhere: No reader counts twice or for ever, wherever its acquisition is cut.
//   - AReadersEndCutAnywhere: No reader counts for ever, wherever its release is cut.
//   - AWaitForReadersCutAnywhere: A writer that waits for readers gets the key, wherever it is cut.
//   - APermitCutAnywhere: No permit counts twice or for ever, wherever its acquisition is cut.
//   - APermitsEndCutAnywhere: No permit counts for ever, wherever its release is cut.
//   - LosesNothingToAPause: With a guard no acknowledged write is lost to holders that pause.
//   - ControlLosesToAPause: Without the guard writes are lost.
//   - ServesACrowdOnce: Thousands of waiters of one process cost one statement each.
//   - TakesOverFromTheKilled: A waiter has the lock when the time of a killed holder is up.
//   - KeepsItsWordThroughCrashes: Tokens grow, locks exclude and no update is lost.
//   - ReadersAndWritersThroughCrashes: No writer is beside a reader, which sees the last write.
//   - PermitsThroughCrashes: Permits that are held fit the limit whenever some are granted.
//   - ControlCountsInASubSelect: Permits counted without their lock exceed the limit.
//   - ControlWriterCountsInASubSelect: A writer that counts readers without their lock meets them.
//   - ControlReadersDontLook: Readers that ignore a writer meet it.
//   - ControlLosesUpdates: Without the guard updates are lost.
//   - TakesOverACrowd: Thousands of leases of a killed process are another's after the TTL.
//   - CloseFreesACrowd: Close frees thousands of leases in one statement.
//   - ACrowdCostsOneRow: A heartbeat for thousands of leases changes one row.
//   - AJoinCutAnywhere: A first acquisition that is cut anywhere leaves a process that works.
//   - ABeatCutAnywhere: Heartbeats go on after a cut, or the locks are lost and their contexts end.
//   - ALeaveCutAnywhere: The locks of a closed process are free, after the TTL at the latest.
//   - ServesTheLivingInOrder: Waiters of several processes are served in order; some are killed.
//   - SetsNeverDeadlock: Random sets in random order never deadlock, and are never seen in part.
//   - LeadersFollowInOrder: A leader follows a killed or stopped one, which writes no more.
//   - ControlLeadersMeet: Without the guard a leader writes after a later one.
//   - NobodyStarves: Without tickets no process waits for much longer than most.
//   - ReadersStayOneCrowd: Readers keep one token while writers wait, give up and die.
//   - ServedTooLate: A waiter that is served after its time is up holds nothing without an end.
//   - ExcludesAtRandom: Random calls of several processes never overlap, by file locks.
//   - ControlEntersUnasked: Callers that take a refusal for a grant overlap.
//   - AChurnLeavesNothing: Many acquisitions and ends leave no row, goroutine or connection.
//   - AFrozenServerHoldsNoCaller: On a frozen server releases and acquisitions return in time.
//   - ACloseOfAFrozenServer: Close on a frozen server returns soon after its context ended.
//   - AFairChurnLeavesNothing: AChurnLeavesNothing, of waits with tickets.
//   - AStormOfReaders: Writers get a key that readers storm.
//   - AStormOnPermits: Two callers get all permits of a semaphore that others storm.
//   - AStormOfTickets: Two waiters are served among many tickets that are withdrawn.
//   - AReleaseInALongOutage: A lock released in an outage longer than the TTL is free afterwards.
//   - AnAcquireInALongOutage: A lock whose grant got no answer in such an outage is free later.
//   - OverlapsWithoutDeadlocks: Overlapping sets in each mode, some under guards, never deadlock.
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
//   - ControlSingleLocksMeet: Rows locked one by one in opposite orders deadlock, a conflict.
//   - ClaimsAreDifferent: Concurrent claims have no row in common, and end with their transactions.
//   - SellsEachSeatOnce: Concurrent claims sell each seat once.
//   - ControlSellsSeatsTwice: Without the lock a seat is sold twice.
//   - EndsWithRollbackAndCommit: Row locks end with their transaction.
//   - TablesWithoutRowLocks: A table whose rows the server cannot lock is refused before a read.
//   - PartitionsNeverMeet: Calls for rows of several partitions never deadlock.
//   - LocksNoOtherRows: LockRows leaves the other rows of the table free.
//
// # Recipes
//
//   - NumbersHaveNoGaps: Numbers drawn under a lock have no gaps and no repeats, with rollbacks.
//   - ControlNumbersComeTwice: Without the lock numbers repeat.
//   - ControlSequencesHaveGaps: A sequence keeps the gap of a rollback.
//   - ControlTeamsGrowTooLarge: Without the lock a team gets too many members.
//   - TeamsStaySmall: With the lock, taken in each way, a team keeps its limit.
//   - ASnapshotIsOlderThanTheLock: At REPEATABLE READ a holder reads what was there before.
//
// # Quorums
//
//   - TestFaultsOfQuorumExpireIn: With two of three nodes cut off, no key is taken before its end.
//   - TestFaultsOfQuorumProcesses: Processes exclude each other while servers restart and one dies.
//   - TestFaultsControlQuorumOfOne: With one node enough, processes overlap.
//   - TestQuorumFaults: Locks exclude while servers crash and freeze; two down grant nothing.
//   - TestFaultsControlOneOfThree: With one node enough, two callers hold a key.
//   - TestQuorumIsRefusedByGuards: A quorum's lock has no token, and guards refuse it.
//   - TestQuorumRefusesWhatForgets: A server that may lose commits is no node; the error says why.
//
// # On Linux
//
//   - ANetworkFallsSilent: A lease is free within the TTL of a cut, after its holder's end.
package lock
