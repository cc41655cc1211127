// Package queue holds the suite of jobs and workers.
//
// # Jobs
//
//   - EachJobIsDoneOnce: Each job runs once.
//   - TellsWhatIsRecorded: The Observer hears of each end once, after its commit.
//   - ALoneJobIsDoneAtOnce: A single job waits for no batch and no poll.
//   - TriesAgainUntilItIsDone: A failed job runs again after its backoff.
//   - GivesUpAfterTheLastAttempt: A job that fails in its last attempt is dead.
//   - HandlersMayDoWhatTheyLike: A panic or an exit of a handler fails its own job alone.
//   - AHandlerHasItsTime: A handler's context ends with its timeout.
//   - PutsOffWhatIsSnoozed: A snoozed job runs later, at no cost of an attempt.
//   - DiscardsAndCancels: A handler discards or cancels its job for good.
//   - AnUndecodableJobFailsAlone: A payload that does not decode fails its job alone.
//   - AnUnknownKindWaits: A job of an unknown kind waits for a process that knows it.
//   - EachKindFindsItsProcess: Processes that know one kind each run all jobs, with one attempt.
//   - MiddlewareIsAround: Middleware runs around each handler, in order.
//   - LowerPrioritiesFirst: Jobs with lower priority numbers begin first.
//   - FindsAClaimThatItDoesNotKnow: A claim that its worker gave up is found and released.
//   - RecordsWhatIsLeftAfterWork: Ends that Work could not record are recorded later, as it says.
//   - PayloadsMayTakeLongerThanTimeout: Payloads that take longer than Timeout to read lose no job.
//   - ALongJobKeepsNoPayloads: A long job keeps no payload of its batch in memory.
//   - DelayedJobsWait: A delayed job runs at its time.
//   - EnqueuesInATransaction: A transaction's job exists if, and only if, it commits.
//   - EnqueuesAllOrNone: Several tasks of one call are enqueued together or not at all.
//   - RefusesBadTasks: Bad tasks are refused.
//   - RefusesBadWorkers: Bad options of a worker are refused.
//   - RefusesOnceClosed: A closed queue refuses jobs and work.
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
//   - HandsBackWhatIsPaused: Claimed jobs of a paused queue are handed back before they begin.
//   - APausedQueueRests: No job of a paused queue begins.
//   - APauseReachesOtherProcesses: A pause by another process takes effect.
//   - APausedJobDoesNotBegin: A pause between claim and handler keeps the job from beginning.
//   - AZombieFinishesNothing: A process that was declared dead finishes no job, and says so.
//   - ControlAZombieFinishes: With its claim left in place, it finishes another process's job.
//   - AJobThatNeverBeganNeverDies: A job that was claimed and never began keeps its attempts.
//   - FindsLateJobsBesideABacklog: A worker with a backlog finds jobs that were committed late.
//   - AnAttemptCountsFromItsBeginning: An attempt counts from its beginning, not from its claim.
//   - ABeginningProvesItsClaim: A process that was declared dead begins no job of its old claims.
//   - ALockedJobStopsNoBeginnings: A locked row of a job delays no other beginning.
//   - ALockedJobStopsNoEnds: A locked row delays no other end, be the job done, dead or retried.
//   - ALockedJobStopsNoEndsBesideIt: A locked row delays no other end of the same message.
//   - ARescueHasABackoff: A job of a killed process waits as a failed one does.
//   - ARescuePassesLockedKeys: A rescue passes over locked groups and keys.
//   - ARescueThatFailsKeepsItsClaims: Jobs that a rescue could not write are rescued later.
//   - TheLivingKeepTheirJobs: A heartbeat keeps a job for longer than the TTL.
//   - FindsWhatWasCommittedLate: A job that was committed late runs in the place of its enqueueing.
//   - FindsAClaimThatComesLate: A claim that is committed after a look is found by a later one.
//
// # Keys and groups
//
//   - AUniqueKeyHasOneJob: A unique key has one job at a time.
//   - AUniqueKeyIsFreeOnceItsJobEnds: Every end frees the key, and no failed attempt does.
//   - UniqueKeysInTransactions: A rollback frees the keys that its transaction took.
//   - UniqueJobsAreExact: Concurrent producers of few keys never get two jobs of one key.
//   - ControlWithoutItsRowAKeyHasTwo: Without the key's row they do.
//   - OrderedJobsAreExact: Jobs of a group run one at a time, in order.
//   - ControlJobsWithoutAGroup: Without the group they do not.
//   - LimitedJobsAreExact: A group never runs more jobs than its limit.
//   - ControlALimitThatIsRaised: With a raised limit it does.
//   - AnUrgentJobDoesNotWait: An urgent job that is due passes those that wait for promotion.
//   - AnUrgentJobOfTheSameTimeIsFirst: An urgent job passes those that are due in the same moment.
//   - ALockedGroupHidesNoOthers: A locked group with many due jobs hides no other group.
//   - AGroupIsLetInOneByOne: Each end in a group admits the next job.
//   - ARaisedLimitLetsTheFirstIn: A raised limit admits waiting jobs in order.
//   - GroupsGoOnWhateverEndsTheirJobs: Every kind of end admits the next job.
//   - CancelOfBlockedJobs: Cancelling a blocked job leaves the group's count right.
//   - EndsOfDelayedJobsTakeNoPlaces: The end of a delayed job changes no count of its group.
//   - CancelledJobsLeaveTheirPlaces: Cancelling a ready or snoozed job admits the next one.
//   - ABurialSentTwiceFreesNoKeys: A death that is sent twice frees no key of a later job.
//   - LockedKeysHoldFewConnections: Locked groups and keys keep few connections waiting.
//   - AnOpenTransactionStopsNobody: An open transaction with a group and a key stops no other job.
//   - WaitsForAUniqueKeyAlone: Callers that wait for a locked key keep others from no connection.
//   - ACallOfSeveralKeysStopsNobody: A call of several keys that waits for one stops no other.
//   - LockedGroupsDelayNoOthers: A hundred locked groups delay no other group.
//   - AWrongCountStopsNoOthers: A wrong count of one group stops no other.
//
// # Maintenance
//
//   - OneAtATimeLooksAfterQueues: One process at a time does the maintenance, then another.
//   - ControlTwoLookAfterQueues: Without the leader's lease, two do.
//   - AHandlerMayIgnoreItsTime: A handler that ignores its timeout keeps its job and its result.
//   - AProcessThatFailsIsReplaced: A leader whose statements fail gives way to another process.
//   - AProcessThatFailsSlowlyGoes: So does one whose statements time out.
//   - TheNextLooksAfterThem: When the leader is killed, scheduled jobs still run.
//   - HistoryIsKept: Ended jobs are kept, from the same transaction, for as long as configured.
//   - NoHistoryByDefault: By default no ended job is kept.
//   - HistoryKeepsReasons: History keeps the reason of each end.
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
//   - TellsRetriesApart: List tells failed, killed, snoozed and delayed jobs apart.
//   - CancelsWhatWaits: Cancel ends a waiting job.
//   - CancelsWhatRuns: Cancel ends the context of a running job, and one that ignores it is done.
//   - CancelsForGood: A cancelled job never begins again, however its attempt ends.
//   - CancelsWhatIsHandedBack: Nor does one that its worker hands back.
//   - CancelsWhatIsRescued: Nor does one whose process dies.
//   - CancelsWhatIsNotKnown: Nor does one of a claim that the worker does not know.
//   - CancelsWhatIsEnding: A cancellation and an end at the same time leave one result.
//   - DiscardsRetriesAndPurges: Discard, Retry and Purge do what they say.
//   - OneOfManyEndsAJob: Concurrent cancellations, discards and workers end a job once.
//   - RefusesBadQuestions: Bad filters and ids are refused.
//   - PollOnlyIsToldOfNothing: Without notifications the poll finds jobs; own jobs begin at once.
//   - ReadsAreNeverUnknown: A failed read is never ErrOutcomeUnknown.
//   - RetryAllEnds: RetryAll retries each job once, also if jobs die again at once.
//   - RetryAllPassesTakenKeys: RetryAll passes over jobs whose unique keys are taken.
//   - RetryBesideAnOpenTransaction: An open transaction with a dead job's key delays no others.
//   - TheReasonIsKeptWhole: The text around a decision is kept, and observers hear of each end.
//   - TheHostMayExit: A call of runtime.Goexit in the host's functions costs one job at most.
//   - TheHostMayPanic: A panic or nil error of the host's functions costs one job at most.
//
// # Handlers with a transaction
//
//   - EffectsAndEndsAreOne: A job's effects exist if, and only if, its end is recorded.
//   - EffectsOfChainsOfJobs: A job's follow-up exists if, and only if, the job has ended.
//   - EffectsInGroups: The end frees keys and admits the next job of the group.
//   - EffectsAndHistory: The end is kept in the history.
//   - EffectsAndMiddleware: Middleware decides whether the transaction commits.
//   - EffectsInTime: A handler that returns after its timeout has no effect.
//   - EffectsOfConflicts: Handlers with conflicts run again at once, a bounded number of times.
//   - EffectsOfTheCancelled: A cancelled job has no effect.
//   - EffectsOfLockedKeys: Ends wait for locked groups and keys.
//   - EffectsOfEndsThatGiveWay: An end that always conflicts puts the job off.
//   - EffectsOfASwallowedDeadlock: A handler that ignores a deadlock does not end its job.
//   - EffectsAtTheEndOfWork: A worker that stops lets handlers commit in time or rolls back.
//   - EffectsOfHandlersThatEndTheirTx: A handler that ends its transaction fails, and says why.
//   - EffectsWithoutConnections: Without a free connection no job begins, at no cost of an attempt.
//   - KeptTransactionsAreOfNoUse: A transaction kept beyond its handler returns errors.
//   - RefusesBadTxHandlers: Bad handlers are refused.
//   - EffectsOfAJobThatOthersEnded: A commit that rolled back is never recorded.
//   - ControlAJobThatOthersEnded: With the process's row in place, it is.
//   - EffectsOfACommitWithoutAnAnswer: Without a reply a commit is recorded by a living process.
//   - EndsOfAJobThatOthersEnded: An end that was not recorded is sent again.
//   - EndsSentAgain: An end that was recorded counts as recorded when it is sent again.
//
// # Under faults
//
//   - AQueueClosesOnAFrozenServer: Close returns soon after its context ended, on a frozen server.
//   - ACloseCutAnywhere: Close removes the process wherever its connection breaks.
//   - AZombieMovesNothing: A failed attempt of a zombie neither delays nor buries its job.
//   - RescuesTheJobsOfTheKilled: Jobs of a killed process run elsewhere.
//   - BuriesWhatKillsItsWorkers: A job that kills its process too often is dead.
//   - ASlowServerRescuesStepByStep: On a slow server a rescue goes on in smaller steps.
//   - ASlowServerPrunesStepByStep: So does the pruning of history.
//   - LostRepliesLoseNothing: Broken connections lose and repeat no job.
//   - BulksSurviveLostReplies: Nor do they in bulks of several messages.
//   - ManyClaimersAndProducersAgree: Many producers and workers never deadlock, lose or repeat.
//   - KeysOutliveTheKilled: Keys and places of a killed worker's jobs are kept until those end.
//   - ControlKeysDieWithTheKilled: Without that, order is lost.
//   - ControlLostRepliesWithoutGroups: Without groups, order is lost.
//   - AnExitIsACrash: A handler that exits its process counts as a crash.
//   - KeysSurviveLostReplies: With broken connections groups keep their order and keys end.
//   - LostCommitsHoldFewConnections: Commits without a reply keep few connections.
//   - AZombiesEffectsRollBack: A zombie's transaction rolls back.
//   - ControlAZombiesEffects: With its rows left in place there are two effects.
//   - AToldZombiesEffectsRollBack: A zombie that knows it does not try to commit.
//   - EffectsOfTheKilled: The effects of a killed worker do not exist.
//   - EffectsCutAnywhere: Each job has its effect once, wherever the connection breaks.
//   - ControlEffectsApartFromTheEnd: An effect that is committed apart from the end exists twice.
//   - EffectsOfACommitThatComesLate: An answer waits for a commit that reaches the server late.
//   - TestTheJudgeOfJobs: The checker of the tests of faults finds each kind of wrong log.
//
// # Notifications on Postgres
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
package queue
