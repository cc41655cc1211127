package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// contract is what leases promise wherever they lie. Tests that need a database are in Lease.Run.
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

// RunLeases runs the part of the suite that needs no database, each test on a place of its own. The place is in memory: a test runs in a
// bubble of testing/synctest, where all waits are short.
func RunLeases(t *testing.T, at func(t *testing.T) LeasePlace) {
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, Place{LeasePlace: at(t), bubble: true}) })
		})
	}
}

// runContract is RunLeases on the database of a server.
func (e Lease) runContract(t *testing.T) {
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, Place{LeasePlace: e.env(t)})
		})
	}
}

// LeasePlace is where processes have their leases in common: a database, or what stands in for one.
type LeasePlace interface {
	// OpenLeases makes a Locker, as a process of its own would; end ends what it was made of.
	OpenLeases(ctx context.Context, o LeaseOptions) (l Leases, end func(), err error)

	// Check guards a lock, as its holder would before a write.
	Check(ctx context.Context, l Leases, lock *dblock.Lock) error

	// ForgetMembers deletes all members; ExpireMembers lets them expire, long ago.
	ForgetMembers(t *testing.T)
	ExpireMembers(t *testing.T)

	// AgeLeases has all leases look as if nobody had used them for long.
	AgeLeases(t *testing.T)

	// Tickets counts the calls that wait with one.
	Tickets(t *testing.T) int

	// Rows counts what there is.
	Rows(t *testing.T) (members, leases, waiters int)
}

// quieter is a place that can tell, while its processes live, whether all locks have been given back.
type quieter interface{ Quiet(t *testing.T) }

// Place is a LeasePlace with what tests want of it.
type Place struct {
	LeasePlace
	bubble bool // in which there are no subtests
}

// each runs a case of a test: as a subtest in parallel, or at once in a bubble.
func (p Place) each(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	if p.bubble {
		t.Log(name)
		test(t)
		return
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}

// process is a Locker as a process of its own would have it. It never has to be closed.
func (p Place) process(t *testing.T, o LeaseOptions) Leases {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = time.Minute // a busy machine must not lose what a test holds
	}
	if o.Poll == 0 {
		o.Poll = 50 * time.Millisecond
	}
	l, end, err := p.OpenLeases(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if q, ok := p.LeasePlace.(quieter); ok {
			q.Quiet(t)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = l.Close(ctx)
		end()
	})
	return l
}

var _ LeasePlace = (*env)(nil)

func (v *env) OpenLeases(ctx context.Context, o LeaseOptions) (Leases, func(), error) {
	return v.e.Open(ctx, v.dsn, o)
}

func (v *env) Check(ctx context.Context, l Leases, lock *dblock.Lock) error {
	return v.e.Guarded(ctx, l, lock, "SELECT 1", func() {})
}

func (v *env) ForgetMembers(t *testing.T) { v.exec(t, "DELETE FROM dblock_member") }

func (v *env) ExpireMembers(t *testing.T) {
	v.exec(t, "UPDATE dblock_member SET expires_at = '2000-01-01'")
}

func (v *env) AgeLeases(t *testing.T) {
	v.exec(t, "UPDATE dblock_lease SET changed_at = '2000-01-01'")
}

func (v *env) Tickets(t *testing.T) int {
	if v.e.Kind == devdb.Postgres {
		return int(v.count(t, "SELECT count(*) FROM dblock_ticket"))
	}
	return int(v.count(t, "SELECT count(*) FROM dblock_ticket WHERE NOT served"))
}

func (v *env) Rows(t *testing.T) (members, leases, waiters int) {
	return int(v.count(t, "SELECT count(*) FROM dblock_member")), int(v.count(t, "SELECT count(*) FROM dblock_lease")),
		int(v.count(t, "SELECT count(*) FROM dblock_lease_waiter"))
}
