// Package inventory holds the suite of reservations and stock. Most promises of sales are tested
// merged and with Options.Direct.
//
// # Sales
//
//   - SellsExactlyItsStock: A crowd is sold exactly the stock, and the others get ErrSoldOut.
//   - ALockedSKUDoesNotStallTheRest: A locked row of one SKU delays no other SKU.
//   - AnswersARepeatedKeyAsBefore: A repeated key gets its first answer.
//   - RefusesAKeyWithOtherContents: A key with other contents is ErrKeyReused.
//   - ASoldOutSKUDoesNotStopTheRest: A sold-out SKU stops no other order of its batch.
//   - RecordsRefusalsWhenAsked: With RecordRefusals a refusal is the answer to its key for ever.
//   - FindsWhatIsRecorded: Lookup returns what is recorded of a key.
//   - RefusesBadInput: Bad input is refused without a statement.
//   - APoisonedOrderFailsAlone: An order that a trigger refuses fails alone, in each kind of batch.
//   - RefusesOrdersOnceClosed: Close ends a sale, and each order that was confirmed is recorded.
//   - ReplaysARealOrderFile: A real order file, sent twice, is sold once.
//   - PassesOverLockedBuckets: A batch of several SKUs passes over a locked bucket.
//
// # Stock and books
//
//   - RestocksOnce: A repeated adjustment changes the stock once.
//   - AuditFindsTampering: Audit finds rows that were changed by hand.
//   - RepairsWhatIsOff: Concurrent repairs correct wrong books once.
//   - RepairsInACrowd: Repair beside a sale leaves right books.
//   - RepairsLimitsWithoutStock: Repair counts limits of SKUs that were only sold Unstocked.
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
//   - ALimitCountsWhatIsHeldAndSold: A limit counts held and sold units, and changes of it work.
//   - ALimitCountsNoExpiredHold: A limit counts no expired hold, swept or not.
//   - ALimitCountsNoExpiredHoldBehindOthers: The same behind thousands of expired holds of others.
//   - ALimitHoldsInACrowd: A limit holds for orders of several Stores at once.
//   - ALimitWaitsForNoOtherStock: An order over its limit waits for no stock that it does not need.
//   - ALimitNeedsABuyer: A limit without a buyer is refused.
//   - AStoreKnowsNoMoreThanTheBooks: A Store's memory never contradicts another Store's writes.
//   - AStoreAnswersNothingFromMemory: What is gone from the books was never sold.
//   - WhatNeedsNoStockIsLimited: A limit holds for an SKU without stock.
//   - ACartIsSoldWholeOrNotAtAll: A cart is sold whole or not at all.
//   - ACartWithoutItsFirstLineIsSwept: What is left of a cart is swept.
//   - AKeyIsOfOneOrderOrOneCart: A key of an order is refused for a cart, and the reverse.
//   - RefusesBadCarts: A bad cart is refused without a statement.
//   - ALoneCartWaitsForItsRows: A cart that waits for a row delays no other order.
//   - AnArchiveJobLeavesCartsWhole: The archive job of the documentation takes no cart apart.
//   - CartsWeighTheirLines: A batch counts the lines of a cart, and a crowd of carts is sold.
//
// # Locks of other transactions
//
//   - ARefusalOfAnyKindIsOneOrders: A trigger that fails for one order, with whatever error, fails
//     that order, or its change, alone.
//   - AUniqueIndexRefusesItsOrdersAlone: Orders that an index of the host's refuses fail alone.
//   - ALockOfATriggerIsOneOrders: A trigger that waits for a lock delays its own order alone.
//   - ManyLockedHoldsDelayNoSweep: Expired holds of a locked SKU delay no others.
//   - ARefusedRowDoesNotStopTheSweep: A row that a trigger refuses stops no sweep.
//   - ALockedRowStallsNoOtherChange: A locked row delays its own change alone.
//   - WhatStaysLockedIsBusy: A row that stays locked is ErrBusy, and nothing is written.
//   - ARefusalWaitsForNoLock: An order for more than is left waits for no lock.
//   - LockedSKUsLeaveTheRest: Locked SKUs, more than statements run at once, delay no others.
//   - LockedSKUsLeaveTheRestDirect: Nor do they with Direct.
//   - KeysOpenElsewhereStallNobody: Keys in an open transaction delay no other order.
//   - AKeyOpenElsewhereStallsNobodyDirect: Nor does one with Direct.
//   - KeysOpenElsewhereLockNoStock: Orders that wait for such keys lock no stock.
//   - ALockedTableIsBusyInTime: Behind a locked table calls end within twice Timeout, and leave
//     no session at the server.
//   - ARefusalInAHundredCostsFewTrips: A refusal in a batch costs few statements.
//
// # Allotments and memory
//
//   - SellsFromAllotments: Orders are sold from a process's own share of the stock.
//   - SeesWhatIsAllottedMeanwhile: A Store sees shares that others take.
//   - AllotmentsAreStock: The stock is the sum of all shares.
//   - TakesAnotherAllotment: An empty share is filled again.
//   - ClosesWithoutAServer: Close without a server ends in time, and says what it could not return.
//   - ALeftAllotmentStopsNoSweep: A share that was left behind stops no sweep.
//   - ClosesBesideALockedSKU: Close returns the shares beside a locked SKU.
//   - ClosesBesideASilentSweep: Close returns beside a sweep that gets no answer.
//   - ALatchRefusesWithoutLocks: A known sold-out SKU is refused without a lock.
//   - ALatchEndsWithWhatComesIn: New units end that state.
//   - ALatchNeedsAllOfTheStock: An SKU with a locked row is not known to be sold out.
//
// # Hooks and callers' transactions
//
//   - WritesTheOwnersRows: A hook's rows exist if, and only if, the order is sold.
//   - AHookFailsForOneOrder: A hook that fails fails one order.
//   - AHookWaitsForOneOrder: A hook that waits for a locked row delays one order.
//   - AHookIsRunAgain: A hook runs again with its batch.
//   - AHookThatKeepsItsErrorsIsFound: A hook that ignores errors of its statements does not commit.
//   - AHookThatCommitsIsNoSuccess: All orders whose hook has ended their transaction are unknown.
//   - ACallersTxOutlivesARefusal: A refusal leaves the transaction usable.
//   - ACallersTxMeetsOthers: Orders by transactions and by Stores together keep keys and limits.
//   - ACallersTxNeverSellsOnWhatItSawFirst: An old snapshot sells no unit that is gone.
//   - ACallersTxCountsNoExpiredHold: Limits count no expired hold there.
//   - ASweepThatFailsLeavesTheTransaction: A sweep that fails leaves the transaction usable.
//   - ACallersTxThatIsNone: An ended transaction or a closed Store is refused without a statement.
//
// # Under faults
//
//   - AnOrderCutAnywhere: The answer of an order is true wherever its connection breaks.
//   - AnOrder: The same, merged and direct, when a pool has another mode of queries.
//   - SaysWhenTheServerIsDown: Without a server the error is ErrUnavailable.
//
// # Checked elsewhere
//
// TestInventory and TestInventoryFaults of internal/programs run random programs in 1 to 4
// processes. Their controls are TestControlInventory and the tests of the checker.
//
//   - Each answer for a key is right in one order of the calls (checkOrder): a key is sold once.
//     Races of a hold with its end, its cancellation and sweeps have one result, with and without
//     Options.SoldOutTTL, in transactions of the caller and from allotments.
//   - No order is refused if enough is left and its buyer is under the limit (checkRefusals). Each
//     unit left in the end is for sale, also in the allotment of a killed process (allIsSold).
//   - Stock, reservations, deliveries and limits balance, and no buyer exceeds a limit, in each
//     snapshot while the processes run and in the end (checkBooks).
//   - A delivery changes the stock once (checkRestock). A hook's row exists if, and only if, its
//     order does (checkEffect).
//   - All of this while connections are ended, tables are locked, and processes are killed.
//
// TestFaultsMatrix of internal/faultmatrix sells under each of its faults, with frozen, killed and
// silent servers among them, merged and with Options.Direct. Orders of one statement have true
// answers wherever their connection breaks. Some of them repeat a key, and some ask for more than
// is left. Its control, orderUnkeyed, sells a key twice.
package inventory
