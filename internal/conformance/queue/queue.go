package queue

import (
	"context"
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// OpenOn makes a Queue on the database of dsn, whose connections the dialer makes. closePool ends
// these.
type OpenOn func(ctx context.Context, dsn string, dialer *faultconn.Dialer, o queue.Options) (
	q *queue.Queue, closePool func(), err error)

// Queue is a driver of package queue.
type Queue struct {
	Kind devdb.Kind

	// Open is OpenOn without a dialer.
	Open func(ctx context.Context, dsn string, o queue.Options) (q *queue.Queue, closePool func(), err error)

	OpenOn OpenOn

	// OpenUnfenced opens a Queue for a control: its statement that ends jobs does not check whose
	// they are.
	OpenUnfenced OpenOn

	EnqueueTx func(ctx context.Context, q *queue.Queue, tx *sql.Tx, tasks ...queue.Task) ([]queue.ID, error)

	HandleTx func(q *queue.Queue, kind string, fn TxHandler, opts ...queue.HandlerOption) error
}

// Run runs the suite.
func (e Queue) Run(t *testing.T) {
	e.run(t, map[string]func(*testing.T, *env){
		"EachJobIsDoneOnce": eachJobIsDoneOnce, "TellsWhatIsRecorded": tellsWhatIsRecorded,
		"ALoneJobIsDoneAtOnce": aLoneJobIsDoneAtOnce, "TriesAgainUntilItIsDone": triesAgainUntilItIsDone,
		"GivesUpAfterTheLastAttempt": givesUpAfterTheLastAttempt,
		"HandlersMayDoWhatTheyLike":  handlersMayDoWhatTheyLike, "AHandlerHasItsTime": aHandlerHasItsTime,
		"PutsOffWhatIsSnoozed": putsOffWhatIsSnoozed, "DiscardsAndCancels": discardsAndCancels,
		"AnUndecodableJobFailsAlone": anUndecodableJobFailsAlone, "AnUnknownKindWaits": anUnknownKindWaits,
		"EachKindFindsItsProcess": eachKindFindsItsProcess, "MiddlewareIsAround": middlewareIsAround,
		"LowerPrioritiesFirst": lowerPrioritiesFirst, "FindsAClaimThatItDoesNotKnow": findsAClaimThatItDoesNotKnow,
		"RecordsWhatIsLeftAfterWork":       recordsWhatIsLeftAfterWork,
		"PayloadsMayTakeLongerThanTimeout": payloadsMayTakeLongerThanTimeout,
		"ALongJobKeepsNoPayloads":          aLongJobKeepsNoPayloads, "DelayedJobsWait": delayedJobsWait,
		"EnqueuesInATransaction": enqueuesInATransaction, "EnqueuesAllOrNone": enqueuesAllOrNone,
		"RefusesBadTasks": refusesBadTasks, "RefusesBadWorkers": refusesBadWorkers,
		"HandsBackWhatWasNotBegun":     handsBackWhatWasNotBegun,
		"LeavesThoseWhoIgnoreTheirEnd": leavesThoseWhoIgnoreTheirEnd,
		"HandsBackWhatIsStranded":      handsBackWhatIsStranded, "HandsBackWhatIsPaused": handsBackWhatIsPaused,
		"APausedQueueRests": aPausedQueueRests, "APauseReachesOtherProcesses": aPauseReachesOtherProcesses,
		"AZombieFinishesNothing": aZombieFinishesNothing, "ControlAZombieFinishes": controlAZombieFinishes,
		"AJobThatNeverBeganNeverDies":     aJobThatNeverBeganNeverDies,
		"FindsLateJobsBesideABacklog":     findsLateJobsBesideABacklog,
		"AnAttemptCountsFromItsBeginning": anAttemptCountsFromItsBeginning,
		"ABeginningProvesItsClaim":        aBeginningProvesItsClaim,
		"ALockedJobStopsNoBeginnings":     aLockedJobStopsNoBeginnings, "ALockedJobStopsNoEnds": aLockedJobStopsNoEnds,
		"ALockedJobStopsNoEndsBesideIt": aLockedJobStopsNoEndsOfItsMessage,
		"CountsEachQueueApart":          countsEachQueueApart, "ListsBehindOtherQueues": listsBehindOtherQueues,
		"TellsRetriesApart": tellsRetriesApart, "HistoryKeepsReasons": historyKeepsReasons,
		"BadTimesStopNoQueue": badTimesStopNoQueue, "ABadRowStopsNoQueue": aBadRowStopsNoQueue,
		"ARescueHasABackoff": aRescueHasABackoff, "ARescuePassesLockedKeys": aRescuePassesLockedKeys,
		"ARescueThatFailsKeepsItsClaims": aRescueThatFailsKeepsItsClaims,
		"TheLivingKeepTheirJobs":         theLivingKeepTheirJobs, "UsesASchemaOfTheHostsChoice": queuesInASchema,
		"RunsWithTheDocumentedGrants":    queuesWithTheDocumentedGrants,
		"OperatorsOfJobsNeedTheirGrants": operatorsOfJobsNeedTheirGrants,
		"HandlersMayEnqueueDuringClose":  handlersMayEnqueueDuringClose,
		"AClosedQueueRefusesAllCalls":    aClosedQueueRefusesAllCalls, "ASecondCloseWaits": aSecondCloseWaits,
		"RefusesOnceClosed": queueRefusesOnceClosed, "ChecksTheTables": queueChecksTheTables,
		"AUniqueKeyHasOneJob": aUniqueKeyHasOneJob, "AUniqueKeyIsFreeOnceItsJobEnds": aUniqueKeyIsFreeOnceItsJobEnds,
		"UniqueKeysInTransactions": uniqueKeysInTransactions, "UniqueJobsAreExact": uniqueJobsAreExact,
		"ControlWithoutItsRowAKeyHasTwo": controlWithoutItsRowAKeyHasTwo, "OrderedJobsAreExact": orderedJobsAreExact,
		"ControlJobsWithoutAGroup": controlJobsWithoutAGroup, "LimitedJobsAreExact": limitedJobsAreExact,
		"ControlALimitThatIsRaised":       controlALimitThatIsRaised,
		"AnUrgentJobDoesNotWait":          anUrgentJobDoesNotWaitForABacklog,
		"AnUrgentJobOfTheSameTimeIsFirst": anUrgentJobOfTheSameTimeIsFirst,
		"ALockedGroupHidesNoOthers":       aLockedGroupHidesNoOthers, "AGroupIsLetInOneByOne": aGroupIsLetInOneByOne,
		"ARaisedLimitLetsTheFirstIn":      aRaisedLimitLetsTheFirstIn,
		"GroupsGoOnWhateverEndsTheirJobs": groupsGoOnWhateverEndsTheirJobs,
		"ControlTwoLookAfterQueues":       controlTwoLookAfterQueues, "AHandlerMayIgnoreItsTime": aHandlerMayIgnoreItsTime,
		"OneAtATimeLooksAfterQueues":  oneAtATimeLooksAfterQueues,
		"AProcessThatFailsIsReplaced": aProcessThatFailsIsReplaced,
		"AProcessThatFailsSlowlyGoes": aProcessThatFailsSlowlyGoes, "TheNextLooksAfterThem": theNextLooksAfterThem,
		"HistoryIsKept": historyIsKept, "NoHistoryByDefault": noHistoryByDefault, "PausesAndResumes": pausesAndResumes,
		"APausedJobDoesNotBegin": aPausedJobDoesNotBegin, "CountsJobs": countsJobs,
		"ListsAndShowsJobs": listsAndShowsJobs, "CancelsWhatWaits": cancelsWhatWaits,
		"CancelsWhatRuns": cancelsWhatRuns, "CancelsForGood": cancelsForGood,
		"CancelsWhatIsHandedBack": cancelsWhatIsHandedBack, "CancelsWhatIsRescued": cancelsWhatIsRescued,
		"CancelsWhatIsNotKnown": cancelsWhatIsNotKnown, "CancelsWhatIsEnding": cancelsWhatIsEnding,
		"CancelOfBlockedJobs": cancelOfBlockedJobs, "EndsOfDelayedJobsTakeNoPlaces": endsOfDelayedJobsTakeNoPlaces,
		"CancelledJobsLeaveTheirPlaces": cancelledJobsLeaveTheirPlaces,
		"ABurialSentTwiceFreesNoKeys":   aBurialSentTwiceFreesNoKeys,
		"LockedKeysHoldFewConnections":  lockedKeysHoldFewConnections,
		"DiscardsRetriesAndPurges":      discardsRetriesAndPurges, "OneOfManyEndsAJob": oneOfManyEndsAJob,
		"RefusesBadQuestions": refusesBadQuestions, "EffectsAndEndsAreOne": effectsAndEndsAreOne,
		"EffectsOfChainsOfJobs": effectsOfChainsOfJobs, "EffectsInGroups": effectsInGroups,
		"EffectsAndHistory": effectsAndHistory, "EffectsAndMiddleware": effectsAndMiddleware,
		"EffectsInTime": effectsInTime, "EffectsOfConflicts": effectsOfConflicts,
		"EffectsOfTheCancelled": effectsOfTheCancelled, "EffectsOfLockedKeys": effectsOfLockedKeys,
		"EffectsOfEndsThatGiveWay":    effectsOfEndsThatGiveWay,
		"EffectsOfASwallowedDeadlock": effectsOfASwallowedDeadlock, "EffectsAtTheEndOfWork": effectsAtTheEndOfWork,
		"EffectsOfHandlersThatEndTheirTx": effectsOfHandlersThatEndTheirTx,
		"EffectsWithoutConnections":       effectsWithoutConnections,
		"KeptTransactionsAreOfNoUse":      keptTransactionsAreOfNoUse, "RefusesBadTxHandlers": refusesBadTxHandlers,
		"EffectsOfAJobThatOthersEnded":    effectsOfAJobThatOthersEnded,
		"ControlAJobThatOthersEnded":      controlAJobThatOthersEnded,
		"EffectsOfACommitWithoutAnAnswer": effectsOfACommitWithoutAnAnswer,
		"EndsOfAJobThatOthersEnded":       endsOfAJobThatOthersEnded, "EndsSentAgain": endsSentAgain,
		"PollOnlyIsToldOfNothing": pollOnlyIsToldOfNothing, "CountsJobsOfManyPriorities": countsJobsOfManyPriorities,
		"ReadsAreNeverUnknown": readsAreNeverUnknown, "RetryAllEnds": retryAllEnds,
		"RetryAllPassesTakenKeys":       retryAllPassesTakenKeys,
		"RetryBesideAnOpenTransaction":  retryBesideAnOpenTransaction,
		"AnOpenTransactionStopsNobody":  anOpenTransactionStopsNobody,
		"WaitsForAUniqueKeyAlone":       waitsForAUniqueKeyAlone,
		"ACallOfSeveralKeysStopsNobody": aCallOfSeveralKeysStopsNobody,
		"LockedGroupsDelayNoOthers":     lockedGroupsDelayNoOthers, "AWrongCountStopsNoOthers": aWrongCountStopsNoOthers,
		"TheReasonIsKeptWhole": theReasonIsKeptWhole, "TheHostMayExit": theHostMayExit, "TheHostMayPanic": theHostMayPanic,
	})
}

// RunFaults runs the tests of faults and crowds. Those of workers and their server run one by one.
func (e Queue) RunFaults(t *testing.T) {
	e.runWorkersFaults(t)
	e.run(t, map[string]func(*testing.T, *env){
		"FindsWhatWasCommittedLate": findsWhatWasCommittedLate, "FindsAClaimThatComesLate": findsAClaimThatComesLate,
		"AQueueClosesOnAFrozenServer": aQueueClosesOnAFrozenServer, "ACloseCutAnywhere": aCloseCutAnywhere,
		"AZombieMovesNothing": aZombieMovesNothing, "RescuesTheJobsOfTheKilled": rescuesTheJobsOfTheKilled,
		"BuriesWhatKillsItsWorkers":    buriesWhatKillsItsWorkers,
		"ASlowServerRescuesStepByStep": aSlowServerRescuesStepByStep,
		"ASlowServerPrunesStepByStep":  aSlowServerPrunesStepByStep, "LostRepliesLoseNothing": lostRepliesLoseNothing,
		"BulksSurviveLostReplies":       bulksSurviveLostReplies,
		"ManyClaimersAndProducersAgree": manyClaimersAndProducersAgree, "KeysOutliveTheKilled": keysOutliveTheKilled,
		"ControlKeysDieWithTheKilled":     controlKeysDieWithTheKilled,
		"ControlLostRepliesWithoutGroups": controlLostRepliesWithoutGroups, "AnExitIsACrash": anExitIsACrash,
		"KeysSurviveLostReplies":        keysSurviveLostReplies,
		"LostCommitsHoldFewConnections": lostCommitsHoldFewConnections,
		"AZombiesEffectsRollBack":       aZombiesEffectsRollBack, "ControlAZombiesEffects": controlAZombiesEffects,
		"AToldZombiesEffectsRollBack": aToldZombiesEffectsRollBack, "EffectsOfTheKilled": effectsOfTheKilled,
		"EffectsCutAnywhere": effectsCutAnywhere, "ControlEffectsApartFromTheEnd": controlEffectsApartFromTheEnd,
		"EffectsOfACommitThatComesLate": effectsOfACommitThatComesLate,
	})
}

func (e Queue) run(t *testing.T, tests map[string]func(*testing.T, *env)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e.env(t))
		})
	}
}
