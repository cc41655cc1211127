// Package queue holds the suite of jobs and workers.
//
// # Jobs
//
//   - EachEndHasItsReason: Observers and the dead have the reason of each end, such as an error, a
//     timeout, a panic, an exit, a decision, or a payload that does not decode.
//   - TellsWhatIsRecorded: The Observer is called for each end once, after its commit.
//   - ALoneJobIsDoneAtOnce: A single job waits for no batch and no poll.
//   - AnUnknownKindWaits: A job of an unknown kind waits for a process that knows it, at no cost.
//   - LowerPrioritiesFirst: Jobs with lower priority numbers begin first.
//   - FindsAClaimThatItDoesNotKnow: A claim that its worker gave up is found.
//   - RecordsWhatIsLeftAfterWork: Ends that Work could not record are recorded later, as it says.
//   - PayloadsMayTakeLongerThanTimeout: Payloads that take longer than Timeout to read lose no job.
//   - ALongJobKeepsNoPayloads: A long job keeps no payload of its batch in memory.
//   - EnqueuesAllOrNone: Several tasks of one call are enqueued together or not at all.
//   - AClosedQueueRefusesAllCalls: Every method but Close of a closed Queue returns ErrClosed.
//   - ASecondCloseWaits: A second Close waits for the first, while its context lives.
//   - ChecksTheTables: A Queue opens only over whole tables, and over connections that commit.
//   - UsesASchemaOfTheHostsChoice: Jobs work in a schema outside the connection's path.
//   - RunsWithTheDocumentedGrants: Every call works with the rights of docs/grants.md.
//   - OperatorsOfJobsNeedTheirGrants: An operator's commands need each documented right.
//   - HandlersMayEnqueueDuringClose: Handlers use the Queue during Close, for as long as Grace.
//
// # Claims and attempts
//
//   - HandsBackWhatWasNotBegun: A worker that stops hands back its jobs, at no cost of an attempt.
//   - LeavesThoseWhoIgnoreTheirEnd: Work returns although handlers ignore their contexts.
//   - HandsBackWhatIsStranded: Jobs behind blocked handlers are handed back and run elsewhere.
//   - APauseReachesOtherProcesses: A pause by another process takes effect.
//   - APausedJobDoesNotBegin: A pause between claim and handler keeps the job from beginning.
//   - AZombieFinishesNothing: A process that was declared dead neither ends, delays nor discards a
//     job, and says so.
//   - ControlAZombieFinishes: With its claim left in place, it finishes another process's job.
//   - FindsLateJobsBesideABacklog: A worker with a backlog finds jobs that were committed late.
//   - AnAttemptCountsFromItsBeginning: An attempt counts from its beginning, not from its claim. A
//     job that never began never dies.
//   - ABeginningProvesItsClaim: A process that was declared dead begins no job of its old claims.
//   - ABeginningHasItsConnection: An attempt that waits for its transaction has not begun, and has
//     all its time.
//   - ALockedJobStopsNoBeginnings: A locked row of a job delays no other beginning.
//   - ALockedJobStopsNoEnds: Locked rows delay no other end, not even of the same message.
//   - ALockedDeadTableStopsNoEnds: A locked table of dead jobs delays no job that does not die.
//   - ARescuePassesLockedKeys: A rescue passes over locked groups and keys.
//   - ARescueThatFailsKeepsItsClaims: Jobs that a rescue could not write wait for a later one.
//   - TheLivingKeepTheirJobs: A heartbeat keeps a job for longer than the TTL.
//   - FindsWhatWasCommittedLate: A job that was committed late runs in the place of its enqueueing.
//   - AForgottenEndIsRepeated: A job whose end a failover lost runs again, though its claim ended.
//   - FindsAClaimThatComesLate: A claim that is committed after a look is found by a later one.
//
// # Keys and groups
//
//   - AUniqueKeyHasOneJob: A unique key has one job at a time.
//   - AnUrgentJobDoesNotWait: An urgent job that is due passes those that wait for promotion.
//   - AnUrgentJobOfTheSameTimeIsFirst: An urgent job passes those that are due in the same moment.
//   - ALockedGroupHidesNoOthers: A locked group with many due jobs hides no other group.
//   - ARaisedLimitLetsTheFirstIn: A raised limit admits waiting jobs in order.
//   - OlderJobsKeepTheLimit: The job that was enqueued last says what the limit of its group is.
//   - AGroupWithGapsIsDone: A group goes on where jobs of it were deleted.
//   - AnOldSnapshotBlocksNoGroup: A group goes on after EnqueueTx in a transaction with a snapshot
//     older than the group's end, at any isolation level.
//   - CancelOfBlockedJobs: Cancelling a blocked job leaves the group's count right.
//   - EndsOfDelayedJobsTakeNoPlaces: The end of a delayed job changes no count of its group.
//   - ABurialSentTwiceFreesNoKeys: A death that is sent twice frees no key of a later job.
//   - LockedKeysHoldFewConnections: Locked groups and keys keep few connections waiting.
//   - AnOpenTransactionStopsNobody: An open transaction with a group and a key stops no other job.
//   - ALockedTableLeavesNoSession: Behind a locked table calls end in time, and leave no session at
//     the server.
//   - WaitsForAUniqueKeyAlone: Callers that wait for a locked key keep others from no connection. A
//     rollback frees it.
//   - ACallOfSeveralKeysStopsNobody: A call of several keys that waits for one stops no other.
//   - ARefusedTaskFailsAlone: A task that a trigger refuses, with whatever error, fails alone.
//   - ARefusedEndFailsAlone: An end that a trigger refuses stops no other, and is recorded later.
//   - ARefusedMoveStopsNoOthers: A job that can't be promoted or retried stops no other.
//   - ARefusedClaimStopsNoOthers: A job that a trigger keeps from being claimed stops no other.
//   - AWrongCountStopsNoOthers: A wrong count of one group stops no other.
//
// # Maintenance
//
//   - OneAtATimeLooksAfterQueues: One process at a time does the maintenance, then another.
//   - ControlTwoLookAfterQueues: Without the leader's lease, two do.
//   - AHandlerMayIgnoreItsTime: A handler that ignores its timeout keeps its job and its result.
//   - AProcessThatFailsIsReplaced: A leader whose statements fail gives way to another process.
//   - AProcessThatFailsSlowlyGoes: So does one whose statements time out.
//   - HistoryIsKept: Ended jobs are kept with their reasons for as long as configured, by default
//     not at all.
//   - BadTimesStopNoQueue: Bad times in a row stop no queue.
//   - ABadRowStopsNoQueue: Rows that dblock never writes stop no queue.
//
// # Operators
//
//   - PausesAndResumes: A paused queue runs on after Resume.
//   - CountsJobs: Stats counts the jobs of each state.
//   - CountsEachQueueApart: Stats counts 25 large queues beside one that is too large to count.
//   - CountsJobsOfManyPriorities: Stats of a queue with many priorities takes few statements.
//   - ListsAndShowsJobs: List and Show return jobs of every state.
//   - ListsBehindOtherQueues: List finds a queue's jobs behind 10,000 of another.
//   - TellsRetriesApart: List distinguishes failed, killed, snoozed and delayed jobs.
//   - CancelsWhatRuns: Cancel ends the context of a running job, and one that ignores it is done.
//   - CancelsForGood: A cancelled job never begins again, however its attempt ends, or if its
//     worker hands it back.
//   - CancelsWhatIsRescued: Nor does one whose process dies.
//   - CancelsWhatIsEnding: A cancellation and an end at the same time leave one result.
//   - DiscardsRetriesAndPurges: Discard, Retry and Purge do what they say.
//   - PollOnlyIsToldOfNothing: Without notifications the poll finds jobs; own jobs begin at once.
//   - ReadsAreNeverUnknown: A failed read is never ErrOutcomeUnknown.
//   - RetryAllEnds: RetryAll retries each job once, also if jobs die again at once.
//   - RetryAllPassesTakenKeys: RetryAll passes over jobs whose unique keys are taken.
//   - RetryBesideAnOpenTransaction: An open transaction with a dead job's key delays no others.
//   - TheHostMayExit: A call of runtime.Goexit in the host's functions costs one job at most.
//   - TheHostMayPanic: A panic or nil error of the host's functions costs one job at most.
//
// # Handlers with a transaction
//
//   - EffectsInGroups: The end frees keys and admits the next job of the group. A follow-up exists
//     if its job has ended.
//   - EffectsAndMiddleware: Middleware decides whether the transaction commits.
//   - EffectsAndImpatientMiddleware: A job ends after its handler, not its middleware.
//   - EffectsInTime: A handler that returns after its timeout has no effect.
//   - EffectsOfConflicts: Handlers with conflicts run again at once, a bounded number of times.
//   - EffectsOfTheCancelled: A cancelled job has no effect.
//   - EffectsOfLockedKeys: Ends wait for locked groups and keys.
//   - EffectsOfEndsThatGiveWay: An end that always conflicts puts the job off.
//   - EffectsOfASwallowedDeadlock: A handler that ignores a deadlock does not end its job.
//   - EffectsAtTheEndOfWork: A worker that stops lets handlers commit in time or rolls back.
//   - EffectsOfHandlersThatEndTheirTx: A handler that ends its transaction fails, and says why.
//   - EffectsWithoutConnections: Without a free connection no job begins, at no cost of an attempt.
//   - EndsWithoutAnAnswer: An end without a reply is known for what it is, in the next five ways.
//   - EffectsOfAJobThatOthersEnded: A commit that rolled back is never recorded.
//   - ControlAJobThatOthersEnded: With the process's row in place, it is.
//   - EffectsOfACommitWithoutAnAnswer: Without a reply a commit is recorded by a living process.
//   - EndsOfAJobThatOthersEnded: An end that was not recorded is sent again.
//   - EndsSentAgain: An end that was recorded counts as recorded when it is sent again.
//   - KeptTransactionsAreOfNoUse: A transaction kept beyond its handler returns errors.
//   - RefusesBadTxHandlers: Bad handlers are refused.
//
// # Under faults
//
//   - AQueueClosesOnAFrozenServer: Close returns soon after its context ended, on a frozen server.
//   - ACloseCutAnywhere: Close removes the process wherever its connection breaks.
//   - ASlowServerRescuesStepByStep: On a slow server a rescue goes on in smaller steps.
//   - ASlowServerPrunesStepByStep: So does the pruning of history.
//   - BulksSurviveLostReplies: Nor do they in bulks of several messages.
//   - LostCommitsHoldFewConnections: Commits without a reply keep few connections.
//
// # Notifications on Postgres
//
// TestNotifications of package pgqueue has these tests.
//
//   - WakesOtherProcesses: An enqueued job wakes other processes.
//   - TellsOfJobsInTransactions: A commit wakes them, and a rollback does not.
//   - TellsWhoeverIsToCancel: A cancellation reaches the process that runs the job.
//   - QuietOnesTellNobody: A Queue without notifications sends none.
//   - ABurstIsToldAFewTimes: A burst of jobs sends few notifications.
//   - ListensAgain: After its connection ended a process listens again, and polls once.
//   - ListensWhileItWorks: A process has a listening connection while it works only.
//   - SchemasDontHearEachOther: Tables of one schema wake no process of another.
//   - ManyShareWhatTheyHear: Many woken processes run each job once, and do not all claim at once.
//   - WorksBehindAPooler: Behind a pooler jobs are polled for, and the log says so once.
//
// # Checked elsewhere
//
// Package queue checks that bad tasks, bad options and bad filters are refused (TestBadInput), that
// middleware runs around each handler, in order (TestMiddlewareIsAround), and that a hundred locked
// groups delay no other group (TestLockedGroupsDelayNoOthers).
//
// TestQueue and TestQueueFaults of internal/programs check these promises, the latter with
// connections that end and rows that are locked. TestControlQueue and TestJudgesQueue are their
// controls.
//
//   - "lost": each job is done, and each group and key goes on whatever ends its jobs.
//   - "twice": a job is done once, and one of many callers ends it.
//   - "attempts": a job that fails is tried again, and a snooze, a pause or a worker's end costs no
//     attempt.
//   - "at once": a group never runs more jobs than its limit, and a key has one job.
//   - "order" and "early": jobs of a group run in order, and a delayed job waits.
//   - "key": a key is free once its job ends, and not before.
//   - "cancelled": a cancelled job never begins again.
//   - "stuck": every end, also of a waiting job, leaves the group's count right.
//   - "error": many claimers and producers meet no deadlock.
//   - "lost" and "twice" of jobs with a transaction: their effects and their ends are one.
//
// TestQueueEndsFaults of internal/programs checks the same while processes are killed and frozen:
// their jobs run elsewhere, keys and places outlive them, others promote and rescue.
//
// TestFaultsMatrix of internal/faultmatrix checks jobs with a transaction, groups and keys. Each
// row has its control.
//
//   - "nothing lost" of each fault: broken connections and killed servers lose no job.
//   - "nothing twice" of "process frozen past the TTL": a zombie's effects roll back.
//   - "nothing twice" of "process killed": the effects of a killed worker do not exist.
//   - "nothing twice" of "reply lost", "reply lost at COMMIT", "connection cut before a call" and
//     "request that arrives late": each job has its effect once, wherever its connection breaks.
//   - "no leak" of each fault: no claim, key or place of a group is left.
package queue
