package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"

	_ "github.com/go-sql-driver/mysql" // for the suite's own statements
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/migrations"
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
}

// Run runs the suite.
func (e Inventory) Run(t *testing.T) {
	for _, strategy := range inventory.Strategies() {
		t.Run(strategy.String(), func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, *shop){
				"SellsExactlyItsStock":             sellsExactlyItsStock,
				"TellsTheRestSoldOut":              tellsTheRestSoldOut,
				"SellsEveryUnitOfMixedQuantities":  sellsEveryUnitOfMixedQuantities,
				"AnswersARepeatedKeyAsBefore":      answersARepeatedKeyAsBefore,
				"SellsAKeyOnceHoweverOftenSent":    sellsAKeyOnceHoweverOftenSent,
				"RefusesAKeyWithOtherContents":     refusesAKeyWithOtherContents,
				"ASoldOutSKUDoesNotStopTheRest":    aSoldOutSKUDoesNotStopTheRest,
				"RecordsRefusalsWhenAsked":         recordsRefusalsWhenAsked,
				"RestocksOnce":                     restocksOnce,
				"FindsWhatIsRecorded":              findsWhatIsRecorded,
				"AuditFindsTampering":              auditFindsTampering,
				"RefusesBadInput":                  refusesBadInput,
				"APoisonedOrderFailsAlone":         aPoisonedOrderFailsAlone,
				"ALockedSKUDoesNotStallTheRest":    aLockedSKUDoesNotStallTheRest,
				"ManySKUsAtOnceNeverDeadlock":      manySKUsAtOnceNeverDeadlock,
				"ACancelledCallerGetsADefiniteEnd": aCancelledCallerGetsADefiniteEnd,
				"RefusesOrdersOnceClosed":          refusesOrdersOnceClosed,
				"ReplaysARealOrderFile":            replaysARealOrderFile,
				"SurvivesAKilledSeller":            survivesAKilledSeller,
				"AnOrderCutAnywhere":               anOrderCutAnywhere,
				"AnAdjustmentCutAnywhere":          anAdjustmentCutAnywhere,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, e.shop(t, inventory.Options{Strategy: strategy}))
				})
			}
		})
	}
	t.Run("ABatchCutAnywhere", func(t *testing.T) { t.Parallel(); aBatchCutAnywhere(t, e.shop(t, inventory.Options{})) })
	t.Run("ControlSellsTwice", func(t *testing.T) { t.Parallel(); controlSellsTwice(t, e.shop(t, inventory.Options{})) })
	t.Run("ControlOversells", func(t *testing.T) { t.Parallel(); controlOversells(t, e) })
	t.Run("ChecksTheSchema", func(t *testing.T) { t.Parallel(); checksTheSchema(t, e) })
	t.Run("UsesASchemaOfTheHostsChoice", func(t *testing.T) { t.Parallel(); usesASchemaOfTheHostsChoice(t, e) })
	t.Run("RunsWithTheDocumentedGrants", func(t *testing.T) { t.Parallel(); runsWithTheDocumentedGrants(t, e) })
	t.Run("SaysWhenTheServerIsDown", func(t *testing.T) { t.Parallel(); saysWhenTheServerIsDown(t, e) })
}

// shop is one Store on a database of its own, and the suite's own connection to that.
type shop struct {
	*inventory.Store
	e   Inventory
	dsn string
	db  *sql.DB
	o   inventory.Options
}

func (e Inventory) shop(t *testing.T, o inventory.Options) *shop {
	t.Helper()
	s := &shop{e: e, dsn: testdb.DSN(t, e.Kind), o: o}
	s.db = e.connect(t, s.dsn)
	if _, err := migrations.Up(t.Context(), s.db, migrations.Options{Schema: o.Schema}); err != nil {
		t.Fatal(err)
	}
	s.Store = s.open(t, o)
	return s
}

// open makes a further Store on the same database, as another process would.
func (s *shop) open(t *testing.T, o inventory.Options) *inventory.Store {
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
	driver := "mysql"
	if e.Kind == devdb.Postgres {
		driver = "pgx"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *shop) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := s.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%v in %s", err, statement)
	}
}

func (s *shop) count(t *testing.T, query string) (n int64) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	return n
}

func (s *shop) stock(t *testing.T, sku string, units int64) {
	t.Helper()
	_, err := s.Restock(t.Context(), inventory.Adjustment{ID: "stock of " + sku, SKU: sku, Delta: units})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *shop) balance(t *testing.T, sku string) inventory.Balance {
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
func (s *shop) sound(t *testing.T) {
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
	rows := s.count(t, "SELECT count(*) FROM dblock_reservation")
	if keys := s.count(t, "SELECT count(DISTINCT reservation_key) FROM dblock_reservation"); rows != keys {
		t.Errorf("%d rows for %d orders", rows, keys)
	}
}

func order(key, sku string, qty int64) inventory.Request {
	return inventory.Request{Key: key, SKU: sku, Buyer: "buyer of " + key, Qty: qty}
}

// crowd sends the requests all at once and returns what each was told, by key.
func crowd(ctx context.Context, store *inventory.Store, reqs []inventory.Request) []told {
	answers := make([]told, len(reqs))
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i, r := range reqs {
		wg.Go(func() {
			<-gate
			res, err := store.Reserve(ctx, r)
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

func ordersFor(n int, sku string) []inventory.Request {
	reqs := make([]inventory.Request, n)
	for i := range reqs {
		reqs[i] = order(fmt.Sprintf("order-%d", i), sku, 1)
	}
	return reqs
}
