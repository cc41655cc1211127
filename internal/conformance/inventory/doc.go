// Package inventory holds the suite of reservations and stock. Most promises of sales are tested
// merged and with Options.Direct.
//
// # Sales
//
//   - SellsEveryUnitOfMixedQuantities: Orders of mixed quantities sell every unit.
//   - SellsExactlyItsStock: A crowd is sold exactly the stock.
//   - TellsTheRestSoldOut: Buyers beyond the stock get ErrSoldOut.
//   - ALockedSKUDoesNotStallTheRest: A locked row of one SKU delays no other SKU.
//   - AnswersARepeatedKeyAsBefore: A repeated key gets its first answer.
//   - SellsAKeyOnceHoweverOftenSent: A key is sold once, however often it is sent.
//   - RefusesAKeyWithOtherContents: A key with other contents is ErrKeyReused.
//   - ASoldOutSKUDoesNotStopTheRest: A sold-out SKU stops no other order of its batch.
//   - RecordsRefusalsWhenAsked: With RecordRefusals a refusal is the answer to its key for ever.
//   - FindsWhatIsRecorded: Lookup returns what is recorded of a key.
//   - RefusesBadInput: Bad input is refused without a statement.
//   - APoisonedOrderFailsAlone: An order that a trigger refuses fails alone.
//   - APoisonedOrderFailsAloneBesideLimits: The same in batches of every kind.
//   - ManySKUsAtOnceNeverDeadlock: Orders of many SKUs never deadlock.
//   - ACancelledCallerGetsADefiniteEnd: The answer is true, though the caller gives up.
//   - RefusesOrdersOnceClosed: Close ends a sale, and each order that was confirmed is recorded.
//   - ReplaysARealOrderFile: A real order file, sent twice, is sold once.
//   - AnswersAsTheModelDoes: Random calls in several Stores get the answers of the model.
//   - AnswersAsTheModelDoesFromAllotments: The same for stock in allotments.
//   - TheModelNotices: Without the guards the answers differ from the model's.
//   - ControlSellsTwice: The usual code by hand sells a key twice.
//   - ControlOversells: The usual code by hand sells more than the stock.
//   - TheTaleNotices: Without the guards the history of buyers makes no sense.
//   - TellsNoLies: The history of buyers has an order in which each answer is right.
//   - SellsRealInvoices: Real invoices leave the stock that a sale one by one leaves.
//   - SellsScarceInvoices: With half the stock, results are those of the order of commits.
//   - TheOrderOfCommitsMatters: In the order of sending, results differ.
//   - PassesOverLockedBuckets: A batch of several SKUs passes over a locked bucket.
//
// # Stock and books
//
//   - RestocksOnce: A repeated adjustment changes the stock once.
//   - AuditFindsTampering: Audit finds rows that were changed by hand.
//   - RepairsWhatIsOff: Concurrent repairs correct wrong books once.
//   - RepairsInACrowd: Repair beside a sale leaves right books.
//   - BooksAreOffWhereTheyAre: The checker finds books that were wrong for one transaction.
//   - ChecksTheSchema: A Store opens only over whole tables that roll back and skip no row.
//   - UsesASchemaOfTheHostsChoice: A Store works in a schema outside the connection's path.
//   - RunsWithTheDocumentedGrants: Every call works with the rights of docs/grants.md.
//   - OperatorsOfStockNeedTheirGrants: Audit and Lookup need each documented right on stock.
//   - SessionsStayWithinThePool: A Store uses no more connections than it may.
//
// # Holds, limits and carts
//
//   - AHeldOrderGoesItsWay: A held order goes through each state, and no other change works.
//   - ACancelledKeyIsNeverSold: A key that is cancelled before its order is never sold.
//   - HoldsAsLongAsItSays: A hold ends at its time, by the database's clock.
//   - WhatComesBackIsForSale: Restocked, cancelled and expired units are sold again.
//   - ABuyerGetsNoMoreThanTheLimit: Concurrent orders of a buyer keep the limit.
//   - ControlExceedsLimits: Without the database's count they exceed it.
//   - ALimitCountsWhatIsHeldAndSold: A limit counts held and sold units, and changes of it work.
//   - ALimitCountsNoExpiredHold: A limit counts no expired hold, swept or not.
//   - ALimitCountsNoExpiredHoldBehindOthers: The same behind thousands of expired holds of others.
//   - ALimitNeedsABuyer: A limit without a buyer is refused.
//   - AStoreKnowsNoMoreThanTheBooks: A Store's memory never contradicts another Store's writes.
//   - AStoreAnswersNothingFromMemory: What is gone from the books was never sold.
//   - AnSKUComesIntoBeingAmongItsOrders: Orders beside the first restock use its stock or none.
//   - WhatNeedsNoStockIsLimited: A limit holds for an SKU without stock.
//   - ACartIsSoldWholeOrNotAtAll: A cart is sold whole or not at all.
//   - AKeyIsOfOneOrderOrOneCart: A key of an order is refused for a cart, and the reverse.
//   - CartsCrosswise: Carts with the same SKUs in different orders never deadlock.
//   - RefusesBadCarts: A bad cart is refused without a statement.
//   - ConfirmRacesItsEnd: A confirmation beside the hold's end sells the units or returns them.
//   - OneOfManyConfirmsAndCancels: Concurrent confirmations and cancellations have one result.
//   - CancelRacesItsOrder: An order and its cancellation at the same time leave it unsold.
//   - TheLastUnitIsSold: No buyer is refused a unit that is left.
//   - SweepersGiveBackWhatExpired: Concurrent sweeps return each expired hold once.
//   - ALoneCartWaitsForItsRows: A cart that waits for a row delays no other order.
//   - ACrowdOfCartsIsSold: A crowd of carts is sold.
//   - CartsWeighTheirLines: A batch counts the lines of a cart.
//
// # Locks of other transactions
//
//   - ARefusedChangeFailsAlone: Changes that a trigger refuses fail alone.
//   - ARefusedRowDoesNotStopTheSweep: A row that a trigger refuses stops no sweep.
//   - ALockedRowStallsNoOtherChange: A locked row delays its own change alone.
//   - WhatStaysLockedIsBusy: A row that stays locked is ErrBusy, and nothing is written.
//   - ARefusalWaitsForNoLock: An order for more than is left waits for no lock.
//   - FiveLockedSKUsLeaveTheRest: Five locked SKUs delay no others.
//   - FortyLockedSKUsLeaveTheRest: Nor do forty.
//   - ALockedSKULeavesTheRestDirect: Nor does one with Direct.
//   - LockedSKUsLeaveTheRestDirect: Nor do several with Direct.
//   - AKeyOpenElsewhereStallsNobody: A key in an open transaction delays no other order.
//   - KeysOpenElsewhereStallNobody: Nor do several.
//   - AKeyOpenElsewhereStallsNobodyDirect: Nor does one with Direct.
//   - KeysOpenElsewhereLockNoStock: Orders that wait for such keys lock no stock.
//   - ARefusalInAHundredCostsFewTrips: A refusal in a batch costs few statements.
//
// # Allotments and memory
//
//   - SellsFromAllotments: Orders are sold from a process's own share of the stock.
//   - SellsWhatTheDeadHaveLeft: The share of a dead process is sold by others.
//   - SeesWhatIsAllottedMeanwhile: A Store sees shares that others take.
//   - AllotmentsAreStock: The stock is the sum of all shares.
//   - AllotmentsKnowHoldsAndLimits: Holds and limits work with shares.
//   - TakesAnotherAllotment: An empty share is filled again.
//   - AllotmentsSurviveProcesses: Killed and stopped processes lose no unit.
//   - ClosesWithoutAServer: Close without a server ends in time, and says what it could not return.
//   - ALeftAllotmentStopsNoSweep: A share that was left behind stops no sweep.
//   - ClosesBesideALockedSKU: Close returns the shares beside a locked SKU.
//   - ClosesBesideASilentSweep: Close returns beside a sweep that gets no answer.
//   - ALatchRefusesWithoutLocks: A known sold-out SKU is refused without a lock.
//   - ALatchLooksKeysUp: A repeated key still gets its answer then.
//   - ALatchEndsWithWhatComesIn: New units end that state.
//   - ALatchKnowsCarts: It holds for carts.
//
// # Hooks and callers' transactions
//
//   - WritesTheOwnersRows: A hook's rows exist if, and only if, the order is sold.
//   - AHookFailsForOneOrder: A hook that fails fails one order.
//   - AHookIsRunAgain: A hook runs again with its batch.
//   - AHookThatKeepsItsErrorsIsFound: A hook that ignores errors of its statements does not commit.
//   - AHookCutAnywhere: The answer is true wherever the connection breaks, with a hook.
//   - ReservesInACallersTx: Orders in a caller's transaction exist with what else it writes.
//   - ACallersTxOutlivesARefusal: A refusal leaves the transaction usable.
//   - ACallersTxMeetsOthers: Orders by transactions and by Stores together keep keys and limits.
//   - ACallersTxNeverSellsOnWhatItSawFirst: An old snapshot sells no unit that is gone.
//   - ACallersTxCountsNoExpiredHold: Limits count no expired hold there.
//   - ASweepThatFailsLeavesTheRefusal: A sweep that fails leaves the transaction usable.
//   - ACallersTxThatIsNone: An ended transaction or a closed Store is refused without a statement.
//
// # Under faults
//
//   - SurvivesAKilledSeller: The orders of a killed process are sold once when they are sent again.
//   - AnOrderCutAnywhere: The answer of an order is true wherever its connection breaks.
//   - AnAdjustmentCutAnywhere: The same for an adjustment.
//   - AMoveCutAnywhere: The same for a move between buckets.
//   - ABatchCutAnywhere: The same for a batch.
//   - AnOrder: The same, merged and direct, when a pool has another mode of queries.
//   - ABatch: The same for a batch.
//   - SaysWhenTheServerIsDown: Without a server the error is ErrUnavailable.
//   - SurvivesFaults: Books and answers are right while the server is killed, frozen and cut off.
package inventory
