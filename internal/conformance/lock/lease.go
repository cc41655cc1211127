package lock

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
)

// Lease is an engine room's lease locks.
type Lease struct {
	Kind devdb.Kind

	// Open makes a Locker on the database of dsn, as a process of its own would: with a pool that closePool
	// ends.
	Open func(ctx context.Context, dsn string, o LeaseOptions) (l Leases, closePool func(), err error)

	// OpenOn is Open with connections of the given dialer's.
	OpenOn func(
		ctx context.Context, dsn string, dialer *faultconn.Dialer, o LeaseOptions,
	) (l Leases, closePool func(), err error)

	// OpenPair is OpenOn for two Lockers on one pool.
	OpenPair func(
		ctx context.Context, dsn string, dialer *faultconn.Dialer, ofA, ofB LeaseOptions,
	) (a, b Leases, closePool func(), err error)

	// Raise and CheckRaised call the engine room's Guards in a transaction of db.
	Raise, CheckRaised func(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error

	// Guarded runs a statement in the Locker's GuardedTx, and within it then says so.
	Guarded func(ctx context.Context, l Leases, lock *dblock.Lock, statement string, within func()) error
}

// LeaseOptions are those of the engine rooms' LeaseOptions that the suite sets.
type LeaseOptions struct {
	TTL, Margin, Poll time.Duration
	Label, Schema     string
	Fair              bool
	Observer          dblock.Observer
	Log               *slog.Logger
}

// Leases is what the engine rooms' Lease is.
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

func (e Lease) run(t *testing.T, tests map[string]func(*testing.T, *env)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e.env(t))
		})
	}
}

// env is a database with dblock's tables.
type env struct {
	e   Lease
	dsn string
	db  *sql.DB
}

func (e Lease) env(t *testing.T) *env {
	t.Helper()
	v := &env{e: e, dsn: testdb.Migrated(t, e.Kind)}
	v.db = suite.Connect(t, e.Kind, v.dsn)
	return v
}

// process is a Locker as a process of its own would have it. It never has to be closed.
func (v *env) process(t *testing.T, o LeaseOptions) Leases {
	t.Helper()
	return Place{LeasePlace: v}.process(t, o)
}

func (v *env) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := v.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%v in %s", err, statement)
	}
}

func (v *env) count(t *testing.T, query string) (n int64) {
	t.Helper()
	if err := v.db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	return n
}

func token(t *testing.T, lock *dblock.Lock) int64 {
	t.Helper()
	f, ok := lock.Fence()
	if !ok || f.Key != lock.Key() || f.Token <= 0 || f.Handle == [16]byte{} {
		t.Fatalf("a fence of %+v (%v)", f, ok)
	}
	return f.Token
}
