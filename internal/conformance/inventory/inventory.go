package inventory

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
)

// Inventory is an engine room of package inventory.
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

// Hook is a hook of either engine room's, with a way to run a statement in its transaction.
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

// What a strategy promises is tested of it, and no more.
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
	// What follows from a statement's answer is decided in code that strategies share: those of ways run it.
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
	// What becomes of an order after it was sold or set aside has nothing to do with the strategy.
	ofShops = map[string]func(*testing.T, *env){
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
	}
	ofCAS = map[string]func(*testing.T, *env){
		"RefusesWhatOthersChange": refusesWhatOthersChange,
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

// Run runs the suite.
func (e Inventory) Run(t *testing.T) {
	for _, strategy := range e.strategies() {
		t.Run(strategy.String(), func(t *testing.T) {
			t.Parallel()
			run := func(tests map[string]func(*testing.T, *env), o inventory.Options) {
				for name, test := range tests {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test(t, e.env(t, o))
					})
				}
			}
			run(ofAll, small(strategy))
			if isOneOf(ways, strategy) {
				run(ofWays, small(strategy))
			}
			switch {
			case strategy.SellsAll():
				run(ofThoseThatSellAll, patient(strategy))
			case strategy == inventory.CAS:
				run(ofThoseThatRefuse, patient(strategy))
				run(ofCAS, small(strategy))
			default:
				run(ofThoseThatRefuse, patient(strategy))
				run(ofThoseThatNeverWait, small(strategy))
			}
		})
	}
	for name, test := range ofShops {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, e.env(t, patient(inventory.Merge))) })
	}
	for name, test := range ofThoseBeside {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, e) })
	}
	e.run(t, map[string]func(*testing.T, Inventory){
		"ControlSellsTwice":                   on(controlSellsTwice, inventory.Options{}),
		"ControlOversells":                    controlOversells,
		"ControlExceedsLimits":                controlExceedsLimits,
		"PassesOverLockedBuckets":             passesOverLockedBuckets,
		"TheModelNotices":                     theModelNotices,
		"AnswersAsTheModelDoesFromAllotments": on(answersAsTheModelDoesFromAllotments, inventory.Options{}),
		"TheTaleNotices":                      theTaleNotices,
		"RestocksOnce":                        on(restocksOnce, inventory.Options{}),
		"RestocksOnceInBuckets":               on(restocksOnce, inventory.Options{Buckets: 16}),
		"SpreadsWhatComesIn":                  on(spreadsWhatComesIn, inventory.Options{}),
		"AuditFindsTampering":                 on(auditFindsTampering, inventory.Options{}),
		"RefusesWhatTheDatabaseLacks":         refusesWhatTheDatabaseLacks,
		"ChecksTheSchema":                     checksTheSchema,
		"UsesASchemaOfTheHostsChoice":         usesASchemaOfTheHostsChoice,
		"RunsWithTheDocumentedGrants":         runsWithTheDocumentedGrants,
		"OperatorsOfStockNeedTheirGrants":     operatorsOfStockNeedTheirGrants,
	})
}

// RunFaults runs the tests of faults.
func (e Inventory) RunFaults(t *testing.T) {
	for _, strategy := range e.strategies() {
		t.Run(strategy.String(), func(t *testing.T) {
			t.Parallel()
			run := func(name string, test func(*testing.T, *env)) {
				t.Run(name, func(t *testing.T) { t.Parallel(); test(t, e.env(t, small(strategy))) })
			}
			run("SurvivesAKilledSeller", survivesAKilledSeller)
			if isOneOf(ways, strategy) {
				run("AnOrderCutAnywhere", anOrderCutAnywhere)
			}
			if isOneOf(cutAdjustments, strategy) {
				run("AnAdjustmentCutAnywhere", anAdjustmentCutAnywhere)
			}
		})
	}
	e.run(t, map[string]func(*testing.T, Inventory){
		"AMoveCutAnywhere":        on(aMoveCutAnywhere, inventory.Options{}),
		"ABatchCutAnywhere":       on(aBatchCutAnywhere, inventory.Options{}),
		"SaysWhenTheServerIsDown": saysWhenTheServerIsDown,
	})
}

func (e Inventory) run(t *testing.T, tests map[string]func(*testing.T, Inventory)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, e) })
	}
}

// patient has orders wait for as long as a busy machine may take: the tests of that bound set their
// own.
func patient(strategy inventory.Strategy) inventory.Options {
	return inventory.Options{Strategy: strategy, Timeout: time.Minute}
}

// small also bounds how many connections a Store opens, which take longer than most tests do: 12 at
// once are in each other's way as 64 are.
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

// on is a test of one Store, whatever its strategy.
func on(test func(*testing.T, *env), o inventory.Options) func(*testing.T, Inventory) {
	return func(t *testing.T, e Inventory) { test(t, e.env(t, o)) }
}

// strategies are those that the engine has.
func (e Inventory) strategies() []inventory.Strategy {
	return slices.DeleteFunc(inventory.Strategies(), func(s inventory.Strategy) bool {
		return s == inventory.Advisory && e.Kind != devdb.Postgres
	})
}

// env is one Store on a database of its own, and the suite's own connection to that.
type env struct {
	*inventory.Store
	e   Inventory
	dsn string
	db  *sql.DB
	o   inventory.Options

	crowds int // so many were sent
}

func (e Inventory) env(t *testing.T, o inventory.Options) *env {
	t.Helper()
	s := &env{e: e, dsn: testdb.Migrated(t, e.Kind), o: o}
	s.db = e.connect(t, s.dsn)
	s.Store = s.open(t, o)
	return s
}

// open makes a further Store on the same database, as another process would.
func (s *env) open(t *testing.T, o inventory.Options) *inventory.Store {
	t.Helper()
	store, closePool, err := s.e.Open(t.Context(), s.dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closePool)
	return store
}

func (e Inventory) connect(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	return suite.Connect(t, e.Kind, dsn)
}

func (s *env) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := s.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%v in %s", err, statement)
	}
}

func (s *env) count(t *testing.T, query string) (n int64) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	return n
}

func (s *env) stock(t *testing.T, sku string, units int64) {
	t.Helper()
	_, err := s.Restock(t.Context(), inventory.Adjustment{ID: "stock of " + sku, SKU: sku, Delta: units})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *env) balance(t *testing.T, sku string) inventory.Balance {
	t.Helper()
	books, err := s.Audit(t.Context(), sku)
	if err != nil {
		t.Fatal(err)
	}
	if len(books) != 1 {
		t.Fatalf("the books hold %d entries for %q", len(books), sku)
	}
	return books[0]
}

// sound fails where any SKU's books don't balance, or an order stands in them twice.
func (s *env) sound(t *testing.T) {
	t.Helper()
	books, err := s.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range books {
		if b.Drift() != 0 || b.Available < 0 {
			t.Errorf("the books of %q are off by %d: %+v", b.SKU, b.Drift(), b)
		}
	}
	for what, query := range map[string]string{
		"orders lack a line, stand in the books twice, or have lines in different states": `SELECT count(*) FROM (SELECT 1 FROM dblock_reservation
			GROUP BY reservation_key HAVING count(*) <> max(line) + 1 OR count(DISTINCT line) <> count(*) OR min(state) <> max(state)) b`,
		"buyers' limits count something else than what they have": `SELECT count(*) FROM (
			SELECT b.sku, b.buyer FROM (
				SELECT q.sku, q.buyer, q.used AS n FROM dblock_quota q
				UNION ALL SELECT r.sku, r.buyer, -r.qty FROM dblock_reservation r WHERE r.limited AND r.state IN (1, 2)
			) b GROUP BY b.sku, b.buyer HAVING sum(b.n) <> 0) c`,
	} {
		if n := s.count(t, query); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

func order(key, sku string, qty int64) inventory.Request {
	return inventory.Request{Key: key, SKU: sku, Buyer: "buyer of " + key, Qty: qty}
}

// crowd sends the requests all at once and returns what each was told in the end.
func crowd(ctx context.Context, store *inventory.Store, reqs []inventory.Request) []told {
	answers := make([]told, len(reqs))
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i, r := range reqs {
		wg.Go(func() {
			<-gate
			res, err := reserve(ctx, store, r)
			answers[i] = told{r, res, err}
		})
	}
	close(gate)
	wg.Wait()
	return answers
}

// told is what the caller of one request was told.
type told struct {
	req inventory.Request
	res inventory.Reservation
	err error
}

func ordersFor(n int, sku string) []inventory.Request { return ordersOf("order", n, sku) }

// ordersOf are orders whose keys begin with a name.
func ordersOf(name string, n int, sku string) []inventory.Request {
	reqs := make([]inventory.Request, n)
	for i := range reqs {
		reqs[i] = order(fmt.Sprintf("%s-%d", name, i), sku, 1)
	}
	return reqs
}
