package inventory

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// ofThoseBeside is what stands beside the ways of selling: allotments, what is answered from memory, hooks, transactions of the
// caller's, and what is done for the one who looks after the stock.
var ofThoseBeside = map[string]func(*testing.T, Inventory){
	"SellsFromAllotments":                  on(sellsFromAllotments, patient(inventory.Merge)),
	"SellsWhatTheDeadHaveLeft":             on(sellsWhatTheDeadHaveLeft, patient(inventory.Merge)),
	"SeesWhatIsAllottedMeanwhile":          on(seesWhatIsAllottedMeanwhile, patient(inventory.Merge)),
	"AllotmentsAreStock":                   on(allotmentsAreStock, patient(inventory.Merge)),
	"AllotmentsKnowHoldsAndLimits":         on(allotmentsKnowHoldsAndLimits, patient(inventory.Merge)),
	"TakesAnotherAllotment":                on(takesAnotherAllotment, patient(inventory.Merge)),
	"AllotmentsSurviveProcesses":           on(allotmentsSurviveProcesses, patient(inventory.Merge)),
	"FiveLockedSKUsLeaveTheRest":           on(lockedSKUsLeaveTheRest(5, 5), patient(inventory.Merge)),
	"FortyLockedSKUsLeaveTheRest":          on(lockedSKUsLeaveTheRest(40, 5), patient(inventory.Merge)),
	"ALockedSKULeavesTheRestDirect":        on(lockedSKUsLeaveTheRest(1, 50), small(inventory.Direct)),
	"LockedSKUsLeaveTheRestDirect":         on(lockedSKUsLeaveTheRest(40, 5), small(inventory.Direct)),
	"AKeyOpenElsewhereStallsNobody":        on(keysOpenElsewhereStallNobody(1), patient(inventory.Merge)),
	"KeysOpenElsewhereStallNobody":         on(keysOpenElsewhereStallNobody(20), patient(inventory.Merge)),
	"AKeyOpenElsewhereStallsNobodyDirect":  on(keysOpenElsewhereStallNobody(1), small(inventory.Direct)),
	"KeysOpenElsewhereLockNoStock":         on(keysOpenElsewhereLockNoStock, patient(inventory.Merge)),
	"ARefusalInAHundredCostsFewTrips":      on(aRefusalInAHundredCostsFewTrips, patient(inventory.Merge)),
	"ACrowdOfCartsIsSold":                  on(aCrowdOfCartsIsSold, patient(inventory.Merge)),
	"CartsWeighTheirLines":                 on(cartsWeighTheirLines, patient(inventory.Merge)),
	"SessionsStayWithinThePool":            on(sessionsStayWithinThePool, inventory.Options{}),
	"ClosesWithoutAServer":                 closesWithoutAServer,
	"ALeftAllotmentStopsNoSweep":           on(aLeftAllotmentStopsNoSweep, patient(inventory.Merge)),
	"ClosesBesideALockedSKU":               on(closesBesideALockedSKU, patient(inventory.Merge)),
	"ClosesBesideASilentSweep":             on(closesBesideASilentSweep, patient(inventory.Merge)),
	"ALatchRefusesWithoutLocks":            on(aLatchRefusesWithoutLocks, patient(inventory.Merge)),
	"ALatchLooksKeysUp":                    on(aLatchLooksKeysUp, patient(inventory.Merge)),
	"ALatchEndsWithWhatComesIn":            on(aLatchEndsWithWhatComesIn, patient(inventory.Merge)),
	"ALatchKnowsCarts":                     on(aLatchKnowsCarts, patient(inventory.Merge)),
	"RepairsWhatIsOff":                     on(repairsWhatIsOff, patient(inventory.Merge)),
	"RepairsInACrowd":                      on(repairsInACrowd, patient(inventory.Merge)),
	"RebalancesInACrowd":                   on(rebalancesInACrowd, small(inventory.SkipLocked)),
	"LevelsWhatRunsDry":                    on(levelsWhatRunsDry, small(inventory.SkipLocked)),
	"WritesTheOwnersRows":                  on(writesTheOwnersRows, patient(inventory.Merge)),
	"AHookFailsForOneOrder":                on(aHookFailsForOneOrder, patient(inventory.Merge)),
	"AHookIsRunAgain":                      on(aHookIsRunAgain, patient(inventory.Merge)),
	"AHookThatKeepsItsErrorsIsFound":       on(aHookThatKeepsItsErrorsIsFound, patient(inventory.Merge)),
	"AHookCutAnywhere":                     on(aHookCutAnywhere, patient(inventory.Merge)),
	"ReservesInACallersTx":                 ofCallers(reservesInACallersTx),
	"ACallersTxOutlivesARefusal":           ofCallers(aCallersTxOutlivesARefusal),
	"ACallersTxMeetsOthers":                ofCallers(aCallersTxMeetsOthers),
	"ACallersTxNeverSellsOnWhatItSawFirst": ofCallers(aCallersTxNeverSellsOnWhatItSawFirst),
	"ACallersTxCountsNoExpiredHold":        ofCallers(aCallersTxCountsNoExpiredHold),
	"ASweepThatFailsLeavesTheRefusal":      ofCallers(aSweepThatFailsLeavesTheRefusal),
	"ACallersTxThatIsNone":                 ofCallers(aCallersTxThatIsNone),
}

// waitsForARow waits until a session waits for a row lock in the env's database.
func (s *env) waitsForARow(t *testing.T) {
	t.Helper()
	suite.Until(t, "somebody waits for a row", func() bool {
		if s.e.Kind != devdb.Postgres {
			time.Sleep(150 * time.Millisecond) // what is read more often than every 100 ms, InnoDB does not bring up to date
		}
		return s.count(t, suite.RowWaits(s.e.Kind)) > 0
	})
}
