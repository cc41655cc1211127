package lock

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// Lease is the lease locks of a driver.
type Lease struct {
	Kind devdb.Kind

	// Open makes the Locker of a process of its own, with a pool that closePool ends.
	Open func(ctx context.Context, dsn string, o LeaseOptions) (l Leases, closePool func(), err error)

	// OpenOn is Open with connections of the dialer.
	OpenOn func(ctx context.Context, dsn string, dialer *faultconn.Dialer, o LeaseOptions) (
		l Leases, closePool func(), err error)

	// OpenPair is OpenOn for two Lockers on one pool.
	OpenPair func(ctx context.Context, dsn string, dialer *faultconn.Dialer, ofA, ofB LeaseOptions) (
		a, b Leases, closePool func(), err error)

	// Raise and CheckRaised call the driver's Guards in a transaction of db.
	Raise, CheckRaised func(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error

	// Guarded runs a statement in the Locker's GuardedTx, and calls within before it commits.
	Guarded func(ctx context.Context, l Leases, lock *dblock.Lock, statement string, within func()) error
}

// LeaseOptions are those of the drivers' LeaseOptions that the suite sets.
type LeaseOptions struct {
	TTL, Margin, Poll time.Duration
	Label, Schema     string
	Fair              bool
	Observer          dblock.Observer
	Log               *slog.Logger
}

// Leases is what the drivers' Lease is.
type Leases interface {
	dblock.Locker
	Held(ctx context.Context) ([]dblock.HeldLock, error)
	Holder(ctx context.Context, key string) (dblock.HeldLock, error)
	Sweep(ctx context.Context) (int64, error)
	RunSweeper(ctx context.Context, every time.Duration) error
	ForceRelease(ctx context.Context, key string, token int64) error
	AcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error)
	TryAcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error)
	SetPermits(ctx context.Context, key string, limit int) error
}

// contract is what leases promise on a database and in memory.
var contract = map[string]func(*testing.T, Place){
	"Excludes":                        excludes,
	"ExcludesWithinAProcess":          excludesWithinAProcess,
	"ServesThoseWhoWaitInLine":        servesThoseWhoWaitInLine,
	"WakesAnotherProcess":             wakesAnotherProcess,
	"AWaitEndsWithItsContext":         aWaitEndsWithItsContext,
	"KeepsWhatIsInUse":                keepsWhatIsInUse,
	"EndsWhenItsTimeIsUp":             endsWhenItsTimeIsUp,
	"LastsWithoutItsProcess":          lastsWithoutItsProcess,
	"TakesOverFromTheDead":            takesOverFromTheDead,
	"NeverWaitsForItself":             neverWaitsForItself,
	"KeysAreBytes":                    keysAreBytes,
	"RefusesWhatMakesNoSense":         refusesWhatMakesNoSense,
	"ShowsWhoHoldsWhat":               showsWhoHoldsWhat,
	"ShowsOneHolder":                  showsOneHolder,
	"ShowsOneOfSeveral":               showsOneOfSeveral,
	"CloseGivesBack":                  closeGivesBack,
	"NothingWorksAfterClose":          nothingWorksAfterClose,
	"AnEndedContextSendsNothing":      anEndedContextSendsNothing,
	"ErrorsSayWhatIsKnown":            errorsSayWhatIsKnown,
	"SweepsWhatNobodyUses":            sweepsWhatNobodyUses,
	"ManyProcessesNeverMeet":          manyProcessesNeverMeet,
	"ControlMeets":                    controlMeets,
	"TellsTheObserver":                tellsTheObserver,
	"ForceReleaseWantsTheToken":       forceReleaseWantsTheToken,
	"OneSweepsAtATime":                oneSweepsAtATime,
	"SweepsNoReadersAway":             sweepsNoReadersAway,
	"AStolenLockIsLost":               aStolenLockIsLost,
	"ALostMemberLosesAllAndJoinsAnew": aLostMemberLosesAll,
	"HoldsForAnyTime":                 holdsForAnyTime,
	"AcquiresAll":                     acquiresAll,
	"RefusesBadSets":                  refusesBadSets,
	"AllAreLost":                      allAreLost,
	"SetsAmongReaders":                setsAmongReaders,
	"ServesInOrder":                   servesInOrder,
	"ControlOvertakes":                controlOvertakes,
	"FairAmongOthers":                 fairAmongOthers,
	"FairCrowdIsExclusive":            fairCrowdIsExclusive,
	"FairCrowdIsServed":               fairCrowdIsServed,
	"ReadersShare":                    ReadersShare,
	"WaitsForReaders":                 WaitsForReaders,
	"AWriterIsLetIn":                  AWriterIsLetIn,
	"DeadReadersGiveWay":              deadReadersGiveWay,
	"ADeadWriterLeavesReaders":        aDeadWriterLeavesReaders,
	"ReadersDontUpgrade":              ReadersDontUpgrade,
	"ReadersDontWait":                 ReadersDontWait,
	"GuardsReaders":                   guardsReaders,
	"ShowsReaders":                    showsReaders,
	"ASweepLeavesReaders":             aSweepLeavesReaders,
	"PermitsAreLimited":               permitsAreLimited,
	"RefusesOtherLimits":              refusesOtherLimits,
	"ChangesItsPermits":               changesItsPermits,
	"FewerPermitsAreFewer":            fewerPermitsAreFewer,
	"TheDeadGivePermitsBack":          theDeadGivePermitsBack,
	"ShowsPermits":                    showsPermits,
	"NeverMoreThanPermitted":          neverMoreThanPermitted,
	"AWaitForPermitsEnds":             aWaitForPermitsEnds,
	"EachModeKeepsItsPromises":        eachModeKeepsItsPromises,
}

// Run runs the suite.
func (e Lease) Run(t *testing.T) {
	e.runContract(t)
	e.run(t, map[string]func(*testing.T, *env){
		"AGuardFencesOff":                 aGuardFencesOff,
		"AGuardKeepsOthersOut":            aGuardKeepsOthersOut,
		"ExpiresAllOrNothing":             expiresAllOrNothing,
		"EndsBeforeTheServer":             endsBeforeTheServer,
		"AForgottenGrantIsLost":           aForgottenGrantIsLost,
		"AGuardedTxOfAnEndedLockIsLost":   aGuardedTxOfAnEndedLockIsLost,
		"AGuardedTxLeavesNothingBehind":   aGuardedTxLeavesNothingBehind,
		"ARefusedGuardEndsTheLock":        aRefusedGuardEndsTheLock,
		"ABlockedHostKeepsNoLock":         aBlockedHostKeepsNoLock,
		"UsesASchemaOfTheHostsChoice":     locksInASchema,
		"ChecksTheTables":                 leasesCheckTheTables,
		"CostsFewRoundTrips":              costsFewRoundTrips,
		"ARaisedFenceKeepsOthersOut":      aRaisedFenceKeepsOthersOut,
		"RunsWithTheDocumentedGrants":     locksWithTheDocumentedGrants,
		"OperatorsOfLocksNeedTheirGrants": operatorsOfLocksNeedTheirGrants,
		"EndsWhoStopsInAGuard":            endsWhoStopsInAGuard,
		"LosesNothingElsewhere":           losesNothingElsewhere,
		"NeverCommitsWhatIsLost":          neverCommitsWhatIsLost,
		"OneLockedRowStallsNobody":        oneLockedRowStallsNobody,
		"ARefusalWritesNothing":           aRefusalWritesNothing,
		"ASiblingOutlivesAnother":         aSiblingOutlivesAnother,
		"ASetIsReleasedAtOnce":            aSetIsReleasedAtOnce,
		"ControlHoldsAPart":               controlHoldsAPart,
		"AResignationHandsOver":           aResignationHandsOver,
		"ModesCostFewRoundTrips":          modesCostFewRoundTrips,
		"ReadersRaiseTogether":            readersRaiseTogether,
		"CostsOneGrantEach":               costsOneGrantEach,
		"WhoGivesUpIsServed":              whoGivesUpIsServed,
		"AReleaseBesideAWait":             aReleaseBesideAWait,
		"FreesAllPermits":                 freesAllPermits,
		"AWriterLeavesNoTrace":            aWriterLeavesNoTrace,
		"ManyPermitsTakeLittleTime":       manyPermitsTakeLittleTime,
		"ALockedRowIsWaitedFor":           aLockedRowIsWaitedFor,
		"ALockedSetIsWaitedFor":           aLockedSetIsWaitedFor,
		"ALockedGapIsWaitedFor":           aLockedGapIsWaitedFor,
		"LockedPermitsAreWaitedFor":       lockedPermitsAreWaitedFor,
		"LockedWaitersStallNoOthers":      lockedWaitersStallNoOthers,
		"FewerPermitsCountOneUnderWay":    fewerPermitsCountOneUnderWay,
		"OneBadRowFailsAlone":             oneBadRowFailsAlone,
		"ARefusalOfAnyKindIsOneKeys":      aRefusalOfAnyKindIsOneKeys,
		"ABadRowStopsNoOther":             aBadRowStopsNoOther,
		"LargeBatchesAreSplit":            largeBatchesAreSplit,
		"ATokenAheadOfTheClock":           aTokenAheadOfTheClock,
		"AWaiterServedBesideReaders":      aWaiterServedBesideReaders,
		"AWaitingWriterDied":              aWaitingWriterDied,
		"AReleaseBesideClose":             aReleaseBesideClose,
		"HeartbeatsReachAllLockers":       heartbeatsReachAllLockers,
	})
}

// RunFaults runs the tests of faults and crowds.
func (e Lease) RunFaults(t *testing.T) {
	e.runCut(t)
	e.run(t, map[string]func(*testing.T, *env){
		"AnAcquireCutAnywhere":            anAcquireCutAnywhere,
		"AReleaseCutAnywhere":             aReleaseCutAnywhere,
		"ACloseCutAnywhere":               aLeaseCloseCutAnywhere,
		"ASilentWireEndsWaits":            aSilentWireEndsWaitsAsDocumented,
		"AnExpireInCutAnywhere":           anExpireInCutAnywhere,
		"ACrowdIsVerified":                aCrowdIsVerified,
		"APauseBeforeARelease":            aPauseBeforeARelease,
		"AReaderCutAnywhere":              aReaderCutAnywhere,
		"AReadersEndCutAnywhere":          aReadersEndCutAnywhere,
		"AWaitForReadersCutAnywhere":      aWaitForReadersCutAnywhere,
		"APermitCutAnywhere":              aPermitCutAnywhere,
		"APermitsEndCutAnywhere":          aPermitsEndCutAnywhere,
		"LosesNothingToAPause":            losesNothingToAPause,
		"ControlLosesToAPause":            controlLosesToAPause,
		"ServesACrowdOnce":                servesACrowdOnce,
		"TakesOverFromTheKilled":          takesOverFromTheKilled,
		"KeepsItsWordThroughCrashes":      keepsItsWordThroughCrashes,
		"ReadersAndWritersThroughCrashes": readersAndWritersThroughCrashes,
		"PermitsThroughCrashes":           permitsThroughCrashes,
		"ControlCountsInASubSelect":       controlCountsInASubSelect,
		"ControlWriterCountsInASubSelect": controlWriterCountsInASubSelect,
		"ControlReadersDontLook":          controlReadersDontLook,
		"ControlLosesUpdates":             controlLosesUpdates,
		"TakesOverACrowd":                 takesOverACrowd,
		"CloseFreesACrowd":                closeFreesACrowd,
		"ACrowdCostsOneRow":               aCrowdCostsOneRow,
		"AJoinCutAnywhere":                aJoinCutAnywhere,
		"ABeatCutAnywhere":                aBeatCutAnywhere,
		"ALeaveCutAnywhere":               aLeaveCutAnywhere,
		"ServesTheLivingInOrder":          servesTheLivingInOrder,
		"SetsNeverDeadlock":               setsNeverDeadlock,
		"LeadersFollowInOrder":            leadersFollowInOrder,
		"ControlLeadersMeet":              controlLeadersMeet,
		"NobodyStarves":                   nobodyStarves,
		"ReadersStayOneCrowd":             readersStayOneCrowd,
		"ServedTooLate":                   servedTooLate,
		"ExcludesAtRandom":                excludesAtRandom,
		"ControlEntersUnasked":            controlEntersUnasked,
		"AChurnLeavesNothing":             aChurnLeavesNothing,
		"AFrozenServerHoldsNoCaller":      aFrozenServerHoldsNoCaller,
		"ACloseOfAFrozenServer":           aCloseOfAFrozenServer,
		"AFairChurnLeavesNothing":         aFairChurnLeavesNothing,
		"AStormOfReaders":                 aStormOfReaders,
		"AStormOnPermits":                 aStormOnPermits,
		"AStormOfTickets":                 aStormOfTickets,
		"AReleaseInALongOutage":           aReleaseInALongOutage,
		"AnAcquireInALongOutage":          anAcquireInALongOutage,
		"OverlapsWithoutDeadlocks":        overlapsWithoutDeadlocks,
	})
}

// RunLeases runs the contract in memory. A test runs in a bubble of testing/synctest, where waits
// take no time.
func RunLeases(t *testing.T, at func(t *testing.T) LeasePlace) {
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, Place{LeasePlace: at(t), bubble: true}) })
		})
	}
}

func (e Lease) run(t *testing.T, tests map[string]func(*testing.T, *env)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e.env(t))
		})
	}
}

func (e Lease) runContract(t *testing.T) {
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, Place{LeasePlace: e.env(t)})
		})
	}
}
