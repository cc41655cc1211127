package inventory

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// Inventory is a driver of package inventory.
type Inventory struct {
	Kind devdb.Kind

	// Open makes a Store on the database of dsn, with a pool of its own of up to 64 connections,
	// which closePool ends.
	Open func(ctx context.Context, dsn string, o inventory.Options) (store *inventory.Store, closePool func(), err error)

	// OpenOn is Open with connections of the given dialer's.
	OpenOn func(
		ctx context.Context, dsn string, dialer *faultconn.Dialer, o inventory.Options,
	) (store *inventory.Store, closePool func(), err error)

	// OpenHooked is OpenOn with a hook.
	OpenHooked func(
		ctx context.Context, dsn string, dialer *faultconn.Dialer, o inventory.Options, hook Hook,
	) (store *inventory.Store, closePool func(), err error)

	// Callers begin transactions on connections of their own, in every form that ReserveTx takes, by name.
	Callers map[string]func(ctx context.Context, dsn string, level sql.IsolationLevel) (*CallerTx, error)
}

// Hook is a hook of any driver, with a way to run a statement in its transaction.
type Hook = func(ctx context.Context, exec func(statement string) error, granted []inventory.Reservation) error

// CallerTx is a caller's transaction.
type CallerTx struct {
	Reserve    func(context.Context, *inventory.Store, inventory.Request) (inventory.Reservation, error)
	ReserveAll func(context.Context, *inventory.Store, inventory.Cart) (inventory.Reservation, error)
	Exec       func(ctx context.Context, statement string) error
	Commit     func(context.Context) error
	Rollback   func(context.Context) error
	Close      func() // ends the connection
}

// The tests of strategies.
var (
	ofAll = map[string]func(*testing.T, *env){
		"SellsAllToThoseWhoComeAgain":     sellsAllToThoseWhoComeAgain,
		"SellsEveryUnitOfMixedQuantities": sellsEveryUnitOfMixedQuantities,
		"SellsAcrossBuckets":              sellsAcrossBuckets,
		"AnswersARepeatedKeyAsBefore":     answersARepeatedKeyAsBefore,
		"SellsAKeyOnceHoweverOftenSent":   sellsAKeyOnceHoweverOftenSent,
		"FindsWhatIsRecorded":             findsWhatIsRecorded,
		"ManySKUsAtOnceNeverDeadlock":     manySKUsAtOnceNeverDeadlock,
	}
	// What follows from a statement's result is decided in code that strategies share: those of ways run it.
	ofWays = map[string]func(*testing.T, *env){
		"RefusesAKeyWithOtherContents":     refusesAKeyWithOtherContents,
		"ASoldOutSKUDoesNotStopTheRest":    aSoldOutSKUDoesNotStopTheRest,
		"RecordsRefusalsWhenAsked":         recordsRefusalsWhenAsked,
		"RefusesBadInput":                  refusesBadInput,
		"APoisonedOrderFailsAlone":         aPoisonedOrderFailsAlone,
		"ACancelledCallerGetsADefiniteEnd": aCancelledCallerGetsADefiniteEnd,
		"RefusesOrdersOnceClosed":          refusesOrdersOnceClosed,
		"ReplaysARealOrderFile":            replaysARealOrderFile,
		"AnswersAsTheModelDoes":            answersAsTheModelDoes,
	}
	ofThoseThatSellAll = map[string]func(*testing.T, *env){
		"SellsExactlyItsStock":          sellsExactlyItsStock,
		"TellsTheRestSoldOut":           tellsTheRestSoldOut,
		"ALockedSKUDoesNotStallTheRest": aLockedSKUDoesNotStallTheRest,
	}
	ofThoseThatRefuse = map[string]func(*testing.T, *env){
		"NeverSaysSoldOutForBusy": neverSaysSoldOutForBusy,
	}
	ofThoseThatNeverWait = map[string]func(*testing.T, *env){
		"RefusesAtOnceWhatIsHeld": refusesAtOnceWhatIsHeld,
	}
	ofCAS = map[string]func(*testing.T, *env){
		"RefusesWhatOthersChange": refusesWhatOthersChange,
	}
)

// The tests of what does not depend on the strategy.
var (
	ofMerge = map[string]func(*testing.T, *env){
		"AHeldOrderGoesItsWay":                  aHeldOrderGoesItsWay,
		"ACancelledKeyIsNeverSold":              aCancelledKeyIsNeverSold,
		"HoldsAsLongAsItSays":                   holdsAsLongAsItSays,
		"WhatComesBackIsForSale":                whatComesBackIsForSale,
		"ABuyerGetsNoMoreThanTheLimit":          aBuyerGetsNoMoreThanTheLimit,
		"ALimitCountsWhatIsHeldAndSold":         aLimitCountsWhatIsHeldAndSold,
		"ALimitCountsNoExpiredHold":             aLimitCountsNoExpiredHold,
		"ALimitCountsNoExpiredHoldBehindOthers": aLimitCountsNoExpiredHoldBehindOthers,
		"ALimitNeedsABuyer":                     aLimitNeedsABuyer,
		"AStoreKnowsNoMoreThanTheBooks":         aStoreKnowsNoMoreThanTheBooks,
		"AStoreAnswersNothingFromMemory":        aStoreAnswersNothingFromMemory,
		"AnSKUComesIntoBeingAmongItsOrders":     anSKUComesIntoBeingAmongItsOrders,
		"WhatNeedsNoStockIsLimited":             whatNeedsNoStockIsLimited,
		"ACartIsSoldWholeOrNotAtAll":            aCartIsSoldWholeOrNotAtAll,
		"AKeyIsOfOneOrderOrOneCart":             aKeyIsOfOneOrderOrOneCart,
		"CartsCrosswise":                        cartsCrosswise,
		"RefusesBadCarts":                       refusesBadCarts,
		"ConfirmRacesItsEnd":                    confirmRacesItsEnd,
		"OneOfManyConfirmsAndCancels":           oneOfManyConfirmsAndCancels,
		"CancelRacesItsOrder":                   cancelRacesItsOrder,
		"TheLastUnitIsSold":                     theLastUnitIsSold,
		"SweepersGiveBackWhatExpired":           sweepersGiveBackWhatExpired,
		"APoisonedOrderFailsAloneBesideLimits":  aPoisonedOrderFailsAloneBesideLimits,
		"BooksAreOffWhereTheyAre":               booksAreOffWhereTheyAre,
		"TellsNoLies":                           tellsNoLies,
		"SellsRealInvoices":                     sellsRealInvoices,
		"SellsScarceInvoices":                   sellsScarceInvoices,
		"TheOrderOfCommitsMatters":              theOrderOfCommitsMatters,
		"ALoneCartWaitsForItsRows":              aLoneCartWaitsForItsRows,
		"ARefusedChangeFailsAlone":              aRefusedChangeFailsAlone,
		"ARefusedRowDoesNotStopTheSweep":        aRefusedRowDoesNotStopTheSweep,
		"ALockedRowStallsNoOtherChange":         aLockedRowStallsNoOtherChange,
		"WhatStaysLockedIsBusy":                 whatStaysLockedIsBusy,
		"ARefusalWaitsForNoLock":                aRefusalWaitsForNoLock,
		"SellsFromAllotments":                   sellsFromAllotments,
		"SellsWhatTheDeadHaveLeft":              sellsWhatTheDeadHaveLeft,
		"SeesWhatIsAllottedMeanwhile":           seesWhatIsAllottedMeanwhile,
		"AllotmentsAreStock":                    allotmentsAreStock,
		"AllotmentsKnowHoldsAndLimits":          allotmentsKnowHoldsAndLimits,
		"TakesAnotherAllotment":                 takesAnotherAllotment,
		"AllotmentsSurviveProcesses":            allotmentsSurviveProcesses,
		"ALeftAllotmentStopsNoSweep":            aLeftAllotmentStopsNoSweep,
		"ClosesBesideALockedSKU":                closesBesideALockedSKU,
		"ClosesBesideASilentSweep":              closesBesideASilentSweep,
		"FiveLockedSKUsLeaveTheRest":            lockedSKUsLeaveTheRest(5, 5),
		"FortyLockedSKUsLeaveTheRest":           lockedSKUsLeaveTheRest(40, 5),
		"AKeyOpenElsewhereStallsNobody":         keysOpenElsewhereStallNobody(1),
		"KeysOpenElsewhereStallNobody":          keysOpenElsewhereStallNobody(20),
		"KeysOpenElsewhereLockNoStock":          keysOpenElsewhereLockNoStock,
		"ARefusalInAHundredCostsFewTrips":       aRefusalInAHundredCostsFewTrips,
		"ACrowdOfCartsIsSold":                   aCrowdOfCartsIsSold,
		"CartsWeighTheirLines":                  cartsWeighTheirLines,
		"ALatchRefusesWithoutLocks":             aLatchRefusesWithoutLocks,
		"ALatchLooksKeysUp":                     aLatchLooksKeysUp,
		"ALatchEndsWithWhatComesIn":             aLatchEndsWithWhatComesIn,
		"ALatchKnowsCarts":                      aLatchKnowsCarts,
		"RepairsWhatIsOff":                      repairsWhatIsOff,
		"RepairsInACrowd":                       repairsInACrowd,
		"WritesTheOwnersRows":                   writesTheOwnersRows,
		"AHookFailsForOneOrder":                 aHookFailsForOneOrder,
		"AHookIsRunAgain":                       aHookIsRunAgain,
		"AHookThatKeepsItsErrorsIsFound":        aHookThatKeepsItsErrorsIsFound,
		"AHookCutAnywhere":                      aHookCutAnywhere,
		"ControlSellsTwice":                     controlSellsTwice,
		"AnswersAsTheModelDoesFromAllotments":   answersAsTheModelDoesFromAllotments,
		"RestocksOnce":                          restocksOnce,
		"SpreadsWhatComesIn":                    spreadsWhatComesIn,
		"AuditFindsTampering":                   auditFindsTampering,
	}
	others = map[string]func(*testing.T, Inventory){
		"ALockedSKULeavesTheRestDirect":        on(lockedSKUsLeaveTheRest(1, 50), small(inventory.Direct)),
		"LockedSKUsLeaveTheRestDirect":         on(lockedSKUsLeaveTheRest(16, 3), small(inventory.Direct)),
		"AKeyOpenElsewhereStallsNobodyDirect":  on(keysOpenElsewhereStallNobody(1), small(inventory.Direct)),
		"RebalancesInACrowd":                   on(rebalancesInACrowd, small(inventory.SkipLocked)),
		"LevelsWhatRunsDry":                    on(levelsWhatRunsDry, small(inventory.SkipLocked)),
		"SessionsStayWithinThePool":            on(sessionsStayWithinThePool, inventory.Options{}),
		"RestocksOnceInBuckets":                on(restocksOnce, inventory.Options{Buckets: 16}),
		"ClosesWithoutAServer":                 closesWithoutAServer,
		"ReservesInACallersTx":                 ofCallers(reservesInACallersTx),
		"ACallersTxOutlivesARefusal":           ofCallers(aCallersTxOutlivesARefusal),
		"ACallersTxMeetsOthers":                ofCallers(aCallersTxMeetsOthers),
		"ACallersTxNeverSellsOnWhatItSawFirst": ofCallers(aCallersTxNeverSellsOnWhatItSawFirst),
		"ACallersTxCountsNoExpiredHold":        ofCallers(aCallersTxCountsNoExpiredHold),
		"ASweepThatFailsLeavesTheRefusal":      ofCallers(aSweepThatFailsLeavesTheRefusal),
		"ACallersTxThatIsNone":                 ofCallers(aCallersTxThatIsNone),
		"ControlOversells":                     controlOversells,
		"ControlExceedsLimits":                 controlExceedsLimits,
		"PassesOverLockedBuckets":              passesOverLockedBuckets,
		"TheModelNotices":                      theModelNotices,
		"TheTaleNotices":                       theTaleNotices,
		"RefusesWhatTheDatabaseLacks":          refusesWhatTheDatabaseLacks,
		"ChecksTheSchema":                      checksTheSchema,
		"UsesASchemaOfTheHostsChoice":          usesASchemaOfTheHostsChoice,
		"RunsWithTheDocumentedGrants":          runsWithTheDocumentedGrants,
		"OperatorsOfStockNeedTheirGrants":      operatorsOfStockNeedTheirGrants,
	}
)

// One strategy of each conversation with the server stands for the others, and a soak takes them all. Direct is one
// statement, and on MySQL a transaction that only writes. SkipLocked has a row come back, as NoWait, CAS and Advisory
// do in their ways. Merge and ForUpdate read and then write, as batches do. Adjustments know no strategy, only how
// many buckets there are.
var (
	ways           = []inventory.Strategy{inventory.Merge, inventory.Direct, inventory.SkipLocked}
	cutAdjustments = []inventory.Strategy{inventory.Merge, inventory.SkipLocked}
)

func isOneOf(these []inventory.Strategy, strategy inventory.Strategy) bool {
	return slices.Contains(these, strategy) || os.Getenv(suite.EnvSoak) != ""
}

// strategies are those that the driver has.
func (e Inventory) strategies() []inventory.Strategy {
	return slices.DeleteFunc(inventory.Strategies(), func(s inventory.Strategy) bool {
		return s == inventory.Advisory && e.Kind != devdb.Postgres
	})
}

// Run runs the suite.
func (e Inventory) Run(t *testing.T) {
	for _, strategy := range e.strategies() {
		t.Run(strategy.String(), func(t *testing.T) {
			t.Parallel()
			e.run(t, ofAll, small(strategy))
			if isOneOf(ways, strategy) {
				e.run(t, ofWays, small(strategy))
			}
			switch {
			case strategy.SellsAll():
				e.run(t, ofThoseThatSellAll, patient(strategy))
			case strategy == inventory.CAS:
				e.run(t, ofThoseThatRefuse, patient(strategy))
				e.run(t, ofCAS, small(strategy))
			default:
				e.run(t, ofThoseThatRefuse, patient(strategy))
				e.run(t, ofThoseThatNeverWait, small(strategy))
			}
		})
	}
	e.run(t, ofMerge, patient(inventory.Merge))
	for name, test := range others {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, e) })
	}
}

// RunFaults runs the tests of faults.
func (e Inventory) RunFaults(t *testing.T) {
	for _, strategy := range e.strategies() {
		t.Run(strategy.String(), func(t *testing.T) {
			t.Parallel()
			e.run(t, map[string]func(*testing.T, *env){"SurvivesAKilledSeller": survivesAKilledSeller}, small(strategy))
			if isOneOf(ways, strategy) {
				e.run(t, map[string]func(*testing.T, *env){"AnOrderCutAnywhere": anOrderCutAnywhere}, small(strategy))
			}
			if isOneOf(cutAdjustments, strategy) {
				e.run(t, map[string]func(*testing.T, *env){"AnAdjustmentCutAnywhere": anAdjustmentCutAnywhere}, small(strategy))
			}
		})
	}
	e.run(t, map[string]func(*testing.T, *env){
		"AMoveCutAnywhere":  aMoveCutAnywhere,
		"ABatchCutAnywhere": aBatchCutAnywhere,
	}, inventory.Options{}) // what callers leave behind ends with the default Timeout
	t.Run("SaysWhenTheServerIsDown", func(t *testing.T) { t.Parallel(); saysWhenTheServerIsDown(t, e) })
}

func (e Inventory) run(t *testing.T, tests map[string]func(*testing.T, *env), o inventory.Options) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, e.env(t, o)) })
	}
}

// on is a test of one Store.
func on(test func(*testing.T, *env), o inventory.Options) func(*testing.T, Inventory) {
	return func(t *testing.T, e Inventory) { test(t, e.env(t, o)) }
}

// patient has orders wait for as long as a busy machine may take: the tests of that bound set their own.
func patient(strategy inventory.Strategy) inventory.Options {
	return inventory.Options{Strategy: strategy, Timeout: time.Minute}
}

// small also bounds how many connections a Store opens, which take longer than most tests do.
func small(strategy inventory.Strategy) inventory.Options {
	o := patient(strategy)
	if strategy != inventory.Merge {
		o.MaxInFlight = 12
	}
	return o
}

// size is how many orders are enough where n are for batches: orders that are sold one by one meet in a smaller crowd.
func (s *env) size(n int) int {
	if s.o.Strategy == inventory.Merge {
		return n
	}
	return n / 4
}
