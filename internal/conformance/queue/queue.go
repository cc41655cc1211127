package queue

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
)

// Queue is an engine room of package queue.
type Queue struct {
	Kind devdb.Kind

	// Open makes a Queue on the database of dsn, as a process of its own would: with a pool that closePool ends.
	Open func(ctx context.Context, dsn string, o queue.Options) (q *queue.Queue, closePool func(), err error)

	// OpenOn is Open with connections of the given dialer's.
	OpenOn func(ctx context.Context, dsn string, dialer *faultconn.Dialer, o queue.Options) (q *queue.Queue, closePool func(), err error)

	// OpenUnfenced is OpenOn of a Queue whose statement that finishes jobs does not ask whose they are: for a control.
	OpenUnfenced func(ctx context.Context, dsn string, dialer *faultconn.Dialer, o queue.Options) (q *queue.Queue, closePool func(), err error)

	// EnqueueTx calls the engine room's.
	EnqueueTx func(ctx context.Context, q *queue.Queue, tx *sql.Tx, tasks ...queue.Task) ([]queue.ID, error)

	// HandleTx calls the engine room's.
	HandleTx func(q *queue.Queue, kind string, fn TxHandler, opts ...queue.HandlerOption) error
}

// Run runs the suite.
func (e Queue) Run(t *testing.T) {
	e.run(t, map[string]func(*testing.T, *env){
		"EachJobIsDoneOnce":                eachJobIsDoneOnce,
		"TellsWhatIsRecorded":              tellsWhatIsRecorded,
		"ALoneJobIsDoneAtOnce":             aLoneJobIsDoneAtOnce,
		"TriesAgainUntilItIsDone":          triesAgainUntilItIsDone,
		"GivesUpAfterTheLastAttempt":       givesUpAfterTheLastAttempt,
		"HandlersMayDoWhatTheyLike":        handlersMayDoWhatTheyLike,
		"AHandlerHasItsTime":               aHandlerHasItsTime,
		"PutsOffWhatIsSnoozed":             putsOffWhatIsSnoozed,
		"DiscardsAndCancels":               discardsAndCancels,
		"AnUndecodableJobFailsAlone":       anUndecodableJobFailsAlone,
		"AnUnknownKindWaits":               anUnknownKindWaits,
		"EachKindFindsItsProcess":          eachKindFindsItsProcess,
		"MiddlewareIsAround":               middlewareIsAround,
		"LowerPrioritiesFirst":             lowerPrioritiesFirst,
		"FindsAClaimThatItDoesNotKnow":     findsAClaimThatItDoesNotKnow,
		"RecordsWhatIsLeftAfterWork":       recordsWhatIsLeftAfterWork,
		"PayloadsMayTakeLongerThanTimeout": payloadsMayTakeLongerThanTimeout,
		"ALongJobKeepsNoPayloads":          aLongJobKeepsNoPayloads,
		"DelayedJobsWait":                  delayedJobsWait,
		"EnqueuesInATransaction":           enqueuesInATransaction,
		"EnqueuesAllOrNone":                enqueuesAllOrNone,
		"RefusesBadTasks":                  refusesBadTasks,
		"RefusesBadWorkers":                refusesBadWorkers,
		"HandsBackWhatWasNotBegun":         handsBackWhatWasNotBegun,
		"LeavesThoseWhoIgnoreTheirEnd":     leavesThoseWhoIgnoreTheirEnd,
		"HandsBackWhatIsStranded":          handsBackWhatIsStranded,
		"HandsBackWhatIsPaused":            handsBackWhatIsPaused,
		"APausedQueueRests":                aPausedQueueRests,
		"APauseReachesOtherProcesses":      aPauseReachesOtherProcesses,
		"AZombieFinishesNothing":           aZombieFinishesNothing,
		"ControlAZombieFinishes":           controlAZombieFinishes,
		"AJobThatNeverBeganNeverDies":      aJobThatNeverBeganNeverDies,
		"FindsLateJobsBesideABacklog":      findsLateJobsBesideABacklog,
		"AnAttemptCountsFromItsBeginning":  anAttemptCountsFromItsBeginning,
		"ABeginningProvesItsClaim":         aBeginningProvesItsClaim,
		"ALockedJobStopsNoBeginnings":      aLockedJobStopsNoBeginnings,
		"ALockedJobStopsNoEnds":            aLockedJobStopsNoEnds,
		"ALockedJobStopsNoEndsBesideIt":    aLockedJobStopsNoEndsOfItsMessage,
		"CountsEachQueueApart":             countsEachQueueApart,
		"ListsBehindOtherQueues":           listsBehindOtherQueues,
		"TellsRetriesApart":                tellsRetriesApart,
		"HistoryKeepsReasons":              historyKeepsReasons,
		"BadTimesStopNoQueue":              badTimesStopNoQueue,
		"ABadRowStopsNoQueue":              aBadRowStopsNoQueue,
		"ARescueHasABackoff":               aRescueHasABackoff,
		"ARescuePassesLockedKeys":          aRescuePassesLockedKeys,
		"ARescueThatFailsKeepsItsClaims":   aRescueThatFailsKeepsItsClaims,
		"TheLivingKeepTheirJobs":           theLivingKeepTheirJobs,
		"UsesASchemaOfTheHostsChoice":      queuesInASchema,
		"RunsWithTheDocumentedGrants":      queuesWithTheDocumentedGrants,
		"OperatorsOfJobsNeedTheirGrants":   operatorsOfJobsNeedTheirGrants,
		"HandlersMayEnqueueDuringClose":    handlersMayEnqueueDuringClose,
		"AClosedQueueRefusesAllCalls":      aClosedQueueRefusesAllCalls,
		"ASecondCloseWaits":                aSecondCloseWaits,
		"RefusesOnceClosed":                queueRefusesOnceClosed,
		"ChecksTheTables":                  queueChecksTheTables,
		"AUniqueKeyHasOneJob":              aUniqueKeyHasOneJob,
		"AUniqueKeyIsFreeOnceItsJobEnds":   aUniqueKeyIsFreeOnceItsJobEnds,
		"UniqueKeysInTransactions":         uniqueKeysInTransactions,
		"UniqueJobsAreExact":               uniqueJobsAreExact,
		"ControlWithoutItsRowAKeyHasTwo":   controlWithoutItsRowAKeyHasTwo,
		"OrderedJobsAreExact":              orderedJobsAreExact,
		"ControlJobsWithoutAGroup":         controlJobsWithoutAGroup,
		"LimitedJobsAreExact":              limitedJobsAreExact,
		"ControlALimitThatIsRaised":        controlALimitThatIsRaised,
		"AnUrgentJobDoesNotWait":           anUrgentJobDoesNotWaitForABacklog,
		"AnUrgentJobOfTheSameTimeIsFirst":  anUrgentJobOfTheSameTimeIsFirst,
		"ALockedGroupHidesNoOthers":        aLockedGroupHidesNoOthers,
		"AGroupIsLetInOneByOne":            aGroupIsLetInOneByOne,
		"ARaisedLimitLetsTheFirstIn":       aRaisedLimitLetsTheFirstIn,
		"GroupsGoOnWhateverEndsTheirJobs":  groupsGoOnWhateverEndsTheirJobs,
		"ControlTwoLookAfterQueues":        controlTwoLookAfterQueues,
		"AHandlerMayIgnoreItsTime":         aHandlerMayIgnoreItsTime,
		"OneAtATimeLooksAfterQueues":       oneAtATimeLooksAfterQueues,
		"AProcessThatFailsIsReplaced":      aProcessThatFailsIsReplaced,
		"AProcessThatFailsSlowlyGoes":      aProcessThatFailsSlowlyGoes,
		"TheNextLooksAfterThem":            theNextLooksAfterThem,
		"HistoryIsKept":                    historyIsKept,
		"NoHistoryByDefault":               noHistoryByDefault,
		"PausesAndResumes":                 pausesAndResumes,
		"APausedJobDoesNotBegin":           aPausedJobDoesNotBegin,
		"CountsJobs":                       countsJobs,
		"ListsAndShowsJobs":                listsAndShowsJobs,
		"CancelsWhatWaits":                 cancelsWhatWaits,
		"CancelsWhatRuns":                  cancelsWhatRuns,
		"CancelsForGood":                   cancelsForGood,
		"CancelsWhatIsHandedBack":          cancelsWhatIsHandedBack,
		"CancelsWhatIsRescued":             cancelsWhatIsRescued,
		"CancelsWhatIsNotKnown":            cancelsWhatIsNotKnown,
		"CancelsWhatIsEnding":              cancelsWhatIsEnding,
		"CancelOfBlockedJobs":              cancelOfBlockedJobs,
		"EndsOfDelayedJobsTakeNoPlaces":    endsOfDelayedJobsTakeNoPlaces,
		"CancelledJobsLeaveTheirPlaces":    cancelledJobsLeaveTheirPlaces,
		"ABurialSentTwiceFreesNoKeys":      aBurialSentTwiceFreesNoKeys,
		"LockedKeysHoldFewConnections":     lockedKeysHoldFewConnections,
		"DiscardsRetriesAndPurges":         discardsRetriesAndPurges,
		"OneOfManyEndsAJob":                oneOfManyEndsAJob,
		"RefusesBadQuestions":              refusesBadQuestions,
		"EffectsAndEndsAreOne":             effectsAndEndsAreOne,
		"EffectsOfChainsOfJobs":            effectsOfChainsOfJobs,
		"EffectsInGroups":                  effectsInGroups,
		"EffectsAndHistory":                effectsAndHistory,
		"EffectsAndMiddleware":             effectsAndMiddleware,
		"EffectsInTime":                    effectsInTime,
		"EffectsOfConflicts":               effectsOfConflicts,
		"EffectsOfTheCancelled":            effectsOfTheCancelled,
		"EffectsOfLockedKeys":              effectsOfLockedKeys,
		"EffectsOfEndsThatGiveWay":         effectsOfEndsThatGiveWay,
		"EffectsOfASwallowedDeadlock":      effectsOfASwallowedDeadlock,
		"EffectsAtTheEndOfWork":            effectsAtTheEndOfWork,
		"EffectsOfHandlersThatEndTheirTx":  effectsOfHandlersThatEndTheirTx,
		"EffectsWithoutConnections":        effectsWithoutConnections,
		"KeptTransactionsAreOfNoUse":       keptTransactionsAreOfNoUse,
		"RefusesBadTxHandlers":             refusesBadTxHandlers,
		"EffectsOfAJobThatOthersEnded":     effectsOfAJobThatOthersEnded,
		"ControlAJobThatOthersEnded":       controlAJobThatOthersEnded,
		"EffectsOfACommitWithoutAnAnswer":  effectsOfACommitWithoutAnAnswer,
		"EndsOfAJobThatOthersEnded":        endsOfAJobThatOthersEnded,
		"EndsSentAgain":                    endsSentAgain,
		"PollOnlyIsToldOfNothing":          pollOnlyIsToldOfNothing,
		"CountsJobsOfManyPriorities":       countsJobsOfManyPriorities,
		"ReadsAreNeverUnknown":             readsAreNeverUnknown,
		"RetryAllEnds":                     retryAllEnds,
		"RetryAllPassesTakenKeys":          retryAllPassesTakenKeys,
		"RetryBesideAnOpenTransaction":     retryBesideAnOpenTransaction,
		"AnOpenTransactionStopsNobody":     anOpenTransactionStopsNobody,
		"WaitsForAUniqueKeyAlone":          waitsForAUniqueKeyAlone,
		"ACallOfSeveralKeysStopsNobody":    aCallOfSeveralKeysStopsNobody,
		"LockedGroupsDelayNoOthers":        lockedGroupsDelayNoOthers,
		"AWrongCountStopsNoOthers":         aWrongCountStopsNoOthers,
		"TheReasonIsKeptWhole":             theReasonIsKeptWhole,
		"TheHostMayPanic":                  theHostMayPanic,
	})
}

// RunFaults runs the tests of faults and crowds. Those of workers and their server run one by one.
func (e Queue) RunFaults(t *testing.T) {
	e.runWorkersFaults(t)
	e.run(t, map[string]func(*testing.T, *env){
		"FindsWhatWasCommittedLate":       findsWhatWasCommittedLate,
		"FindsAClaimThatComesLate":        findsAClaimThatComesLate,
		"AQueueClosesOnAFrozenServer":     aQueueClosesOnAFrozenServer,
		"ACloseCutAnywhere":               aCloseCutAnywhere,
		"AZombieMovesNothing":             aZombieMovesNothing,
		"RescuesTheJobsOfTheKilled":       rescuesTheJobsOfTheKilled,
		"BuriesWhatKillsItsWorkers":       buriesWhatKillsItsWorkers,
		"ASlowServerRescuesStepByStep":    aSlowServerRescuesStepByStep,
		"ASlowServerPrunesStepByStep":     aSlowServerPrunesStepByStep,
		"LostRepliesLoseNothing":          lostRepliesLoseNothing,
		"BulksSurviveLostReplies":         bulksSurviveLostReplies,
		"ManyClaimersAndProducersAgree":   manyClaimersAndProducersAgree,
		"KeysOutliveTheKilled":            keysOutliveTheKilled,
		"ControlKeysDieWithTheKilled":     controlKeysDieWithTheKilled,
		"ControlLostRepliesWithoutGroups": controlLostRepliesWithoutGroups,
		"AnExitIsACrash":                  anExitIsACrash,
		"KeysSurviveLostReplies":          keysSurviveLostReplies,
		"LostCommitsHoldFewConnections":   lostCommitsHoldFewConnections,
		"AZombiesEffectsRollBack":         aZombiesEffectsRollBack,
		"ControlAZombiesEffects":          controlAZombiesEffects,
		"AToldZombiesEffectsRollBack":     aToldZombiesEffectsRollBack,
		"EffectsOfTheKilled":              effectsOfTheKilled,
		"EffectsCutAnywhere":              effectsCutAnywhere,
		"ControlEffectsApartFromTheEnd":   controlEffectsApartFromTheEnd,
		"EffectsOfACommitThatComesLate":   effectsOfACommitThatComesLate,
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

// env is a database with dblock's tables.
type env struct {
	e   Queue
	dsn string
	db  *sql.DB
}

func (e Queue) env(t *testing.T) *env {
	t.Helper()
	d := &env{e: e, dsn: testdb.Migrated(t, e.Kind)}
	d.db = suite.Connect(t, e.Kind, d.dsn)
	return d
}

// open makes a Queue as a process of its own would have it.
func (d *env) open(t *testing.T, o queue.Options) *queue.Queue {
	t.Helper()
	q, closePool, err := d.e.Open(t.Context(), d.dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := q.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		closePool()
	})
	return q
}

// handle registers a handler.
func handle[T any](t *testing.T, q *queue.Queue, kind string, fn func(context.Context, queue.Job[T]) error, opts ...queue.HandlerOption) {
	t.Helper()
	if err := queue.Handle(q, kind, fn, opts...); err != nil {
		t.Fatal(err)
	}
}

// enqueue enqueues tasks one by one.
func enqueue(t *testing.T, q *queue.Queue, tasks ...queue.Task) (made []queue.ID) {
	t.Helper()
	for _, task := range tasks {
		id, err := q.Enqueue(suite.Soon(t), task)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, id)
	}
	return made
}

// work has a process work until stop is called, which returns what Work does.
func work(t *testing.T, q *queue.Queue, o queue.WorkerOptions) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Work(ctx, o) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-ended
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// wait waits for a value that a handler sends.
func wait[T any](t *testing.T, from <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-suite.Soon(t).Done():
		t.Fatalf("waited in vain for %s", what)
	}
	return got
}

// until asks the database until it answers as it should.
func (d *env) until(t *testing.T, query string, want int64) {
	t.Helper()
	ctx := suite.Soon(t)
	for {
		got := d.count(t, query)
		if got == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %d, want %d", query, got, want)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (d *env) count(t *testing.T, query string) (n int64) {
	t.Helper()
	if err := d.db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	return n
}

func (d *env) text(t *testing.T, query string) (s string) {
	t.Helper()
	if err := d.db.QueryRowContext(t.Context(), query).Scan(&s); err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	return s
}

func (d *env) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := d.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%v in %s", err, statement)
	}
}

// empty waits until nothing is left of any job, but for the dead.
func (d *env) empty(t *testing.T) {
	t.Helper()
	for _, table := range []string{"job", "ready", "scheduled", "claim", "unique", "key", "blocked"} {
		d.until(t, "SELECT count(*) FROM dblock_queue_"+table, 0)
	}
}

// once counts how often each job was done.
type once struct {
	mu    sync.Mutex
	times map[queue.ID]int
}

func (o *once) did(id queue.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.times == nil {
		o.times = make(map[queue.ID]int)
	}
	o.times[id]++
}

func (o *once) done() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.times)
}

// check fails unless each of all was done, and, where exactly, once.
func (o *once) check(all []queue.ID, exactly bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost, twice := 0, 0
	for _, id := range all {
		switch n := o.times[id]; {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	if lost > 0 || exactly && twice > 0 || len(o.times) != len(all) {
		return fmt.Errorf("of %d jobs %d were not done, %d more than once; %d in all were", len(all), lost, twice, len(o.times))
	}
	return nil
}

// fast tries again at once.
func fast(int, error) time.Duration { return time.Millisecond }
