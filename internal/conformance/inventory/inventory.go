package inventory

import (
	"context"
	"database/sql"
	"testing"
	"time"

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

// The tests of both ways to sell.
var (
	ofAll = map[string]func(*testing.T, *env){
		"AnswersARepeatedKeyAsBefore":   answersARepeatedKeyAsBefore,
		"FindsWhatIsRecorded":           findsWhatIsRecorded,
		"RefusesAKeyWithOtherContents":  refusesAKeyWithOtherContents,
		"ASoldOutSKUDoesNotStopTheRest": aSoldOutSKUDoesNotStopTheRest,
		"RecordsRefusalsWhenAsked":      recordsRefusalsWhenAsked,
		"RefusesBadInput":               refusesBadInput,
		"APoisonedOrderFailsAlone":      aPoisonedOrderFailsAlone,
		"RefusesOrdersOnceClosed":       refusesOrdersOnceClosed,
		"ReplaysARealOrderFile":         replaysARealOrderFile,
	}
	ofPatient = map[string]func(*testing.T, *env){
		"SellsExactlyItsStock":          sellsExactlyItsStock,
		"TellsTheRestSoldOut":           tellsTheRestSoldOut,
		"ALockedSKUDoesNotStallTheRest": aLockedSKUDoesNotStallTheRest,
	}
)

// The tests of what does not depend on the way.
var (
	ofMerge = map[string]func(*testing.T, *env){
		"AHeldOrderGoesItsWay":                  aHeldOrderGoesItsWay,
		"ACancelledKeyIsNeverSold":              aCancelledKeyIsNeverSold,
		"HoldsAsLongAsItSays":                   holdsAsLongAsItSays,
		"WhatComesBackIsForSale":                whatComesBackIsForSale,
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
		"RefusesBadCarts":                       refusesBadCarts,
		"APoisonedOrderFailsAloneBesideLimits":  aPoisonedOrderFailsAloneBesideLimits,
		"ALoneCartWaitsForItsRows":              aLoneCartWaitsForItsRows,
		"ARefusedChangeFailsAlone":              aRefusedChangeFailsAlone,
		"ARefusalOfAnyKindIsOneOrders":          aRefusalOfAnyKindIsOneOrders,
		"ALockOfATriggerIsOneOrders":            aLockOfATriggerIsOneOrders,
		"AUniqueIndexRefusesItsOrdersAlone":     aUniqueIndexRefusesItsOrdersAlone,
		"ARefusedRowDoesNotStopTheSweep":        aRefusedRowDoesNotStopTheSweep,
		"ALockedRowStallsNoOtherChange":         aLockedRowStallsNoOtherChange,
		"WhatStaysLockedIsBusy":                 whatStaysLockedIsBusy,
		"ARefusalWaitsForNoLock":                aRefusalWaitsForNoLock,
		"SellsFromAllotments":                   sellsFromAllotments,
		"SeesWhatIsAllottedMeanwhile":           seesWhatIsAllottedMeanwhile,
		"AllotmentsAreStock":                    allotmentsAreStock,
		"TakesAnotherAllotment":                 takesAnotherAllotment,
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
		"ControlSellsTwice":                     controlSellsTwice,
		"RestocksOnce":                          restocksOnce,
		"AuditFindsTampering":                   auditFindsTampering,
	}
	others = map[string]func(*testing.T, Inventory){
		"ALockedSKULeavesTheRestDirect":        on(lockedSKUsLeaveTheRest(1, 50), small(direct)),
		"LockedSKUsLeaveTheRestDirect":         on(lockedSKUsLeaveTheRest(16, 3), small(direct)),
		"AKeyOpenElsewhereStallsNobodyDirect":  on(keysOpenElsewhereStallNobody(1), small(direct)),
		"SessionsStayWithinThePool":            on(sessionsStayWithinThePool, inventory.Options{}),
		"ClosesWithoutAServer":                 closesWithoutAServer,
		"ACallersTxOutlivesARefusal":           ofCallers(aCallersTxOutlivesARefusal),
		"ACallersTxMeetsOthers":                ofCallers(aCallersTxMeetsOthers),
		"ACallersTxNeverSellsOnWhatItSawFirst": ofCallers(aCallersTxNeverSellsOnWhatItSawFirst),
		"ACallersTxCountsNoExpiredHold":        ofCallers(aCallersTxCountsNoExpiredHold),
		"ASweepThatFailsLeavesTheRefusal":      ofCallers(aSweepThatFailsLeavesTheRefusal),
		"ACallersTxThatIsNone":                 ofCallers(aCallersTxThatIsNone),
		"ControlOversells":                     controlOversells,
		"PassesOverLockedBuckets":              passesOverLockedBuckets,
		"ChecksTheSchema":                      checksTheSchema,
		"UsesASchemaOfTheHostsChoice":          usesASchemaOfTheHostsChoice,
		"RunsWithTheDocumentedGrants":          runsWithTheDocumentedGrants,
		"OperatorsOfStockNeedTheirGrants":      operatorsOfStockNeedTheirGrants,
	}
)

// ways are how a Store sells, by name.
var ways = map[string]inventory.Options{"merge": merged, "direct": direct}

var merged, direct = inventory.Options{}, inventory.Options{Direct: true}

// Run runs the suite.
func (e Inventory) Run(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e.run(t, ofAll, small(way))
			e.run(t, ofPatient, patient(way))
		})
	}
	e.run(t, ofMerge, patient(merged))
	for name, test := range others {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, e) })
	}
}

// RunFaults runs the tests of faults.
func (e Inventory) RunFaults(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e.run(t, map[string]func(*testing.T, *env){
				"AnOrderCutAnywhere": anOrderCutAnywhere,
			}, small(way))
		})
	}
	e.run(t, map[string]func(*testing.T, *env){
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
func patient(o inventory.Options) inventory.Options {
	o.Timeout = time.Minute
	return o
}

// small also bounds how many connections a Store opens, which take longer than most tests do.
func small(o inventory.Options) inventory.Options {
	if o.Direct {
		o.MaxInFlight = 12
	}
	return patient(o)
}

// size is how many orders are enough where n are for batches: orders that are sold one by one meet in a smaller crowd.
func (s *env) size(n int) int {
	if s.o.Direct {
		return n / 4
	}
	return n
}
