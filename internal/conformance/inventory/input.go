package inventory

import (
	"errors"
	"math"
	"net"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/migrations"
)

func refusesBadInput(t *testing.T, s *env) {
	for _, sku := range []string{"", "a\x00", "\xff"} {
		if _, err := s.Audit(t.Context(), sku); !errors.Is(err, inventory.ErrInvalid) {
			t.Errorf("Audit of %q: %v", sku, err)
		}
	}
	s.stock(t, "sale", 10)
	for name, c := range map[string]struct {
		req  inventory.Request
		want error
	}{
		"unknown SKU":       {order("k", "nonsense", 1), inventory.ErrUnknownSKU},
		"quantity 0":        {order("k", "sale", 0), inventory.ErrInvalid},
		"negative quantity": {order("k", "sale", -1), inventory.ErrInvalid},
		"huge quantity":     {order("k", "sale", inventory.MaxQty+1), inventory.ErrInvalid},
		"over the stock":    {order("k", "sale", 11), inventory.ErrSoldOut},
		"most there can be": {order("k", "sale", inventory.MaxQty), inventory.ErrSoldOut},
		"empty key":         {order("", "sale", 1), inventory.ErrInvalid},
		"10 kB key":         {order(strings.Repeat("k", 10_000), "sale", 1), inventory.ErrInvalid},
		"256 byte key":      {order(strings.Repeat("k", 256), "sale", 1), inventory.ErrInvalid},
		"NUL in the key":    {order("a\x00b", "sale", 1), inventory.ErrInvalid},
		"no UTF-8 in key":   {order("a\xffb", "sale", 1), inventory.ErrInvalid},
		"empty SKU":         {order("k", "", 1), inventory.ErrInvalid},
		"10 kB SKU":         {order("k", strings.Repeat("s", 10_000), 1), inventory.ErrInvalid},
		"NUL in the SKU":    {order("k", "sa\x00le", 1), inventory.ErrInvalid},
		"NUL in the buyer":  {inventory.Request{Key: "k", SKU: "sale", Buyer: "\x00", Qty: 1}, inventory.ErrInvalid},
		"no UTF-8 in buyer": {inventory.Request{Key: "k", SKU: "sale", Buyer: "\xc3", Qty: 1}, inventory.ErrInvalid},
	} {
		if _, err := s.Reserve(t.Context(), c.req); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	for name, a := range map[string]inventory.Adjustment{
		"empty ID":     {SKU: "sale", Delta: 1},
		"NUL in ID":    {ID: "\x00", SKU: "sale", Delta: 1},
		"empty SKU":    {ID: "k", Delta: 1},
		"huge delta":   {ID: "k", SKU: "sale", Delta: inventory.MaxQty + 1},
		"no UTF-8 SKU": {ID: "k", SKU: "\xff", Delta: 1},
	} {
		if _, err := s.Restock(t.Context(), a); !errors.Is(err, inventory.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := s.Lookup(t.Context(), ""); !errors.Is(err, inventory.ErrInvalid) {
		t.Errorf("look-up of an empty key: %v", err)
	}
	for name, o := range map[string]inventory.Options{
		"direct allotment":  {Direct: true, Allotment: 1},
		"negative timeout":  {Timeout: -1},
		"negative queue":    {MaxQueue: -1},
		"long queue":        {MaxQueue: math.MaxInt},
		"large flight":      {MaxInFlight: math.MaxInt},
		"batch of a crowd":  {MaxBatch: 1 << 20},
		"negative flight":   {MaxInFlight: -1},
		"schema with a dot": {Schema: "a.b"},
	} {
		if _, _, err := s.e.Open(t.Context(), s.dsn, o); !errors.Is(err, inventory.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if b := s.balance(t, "sale"); b.Available != 10 || s.Count(t, "SELECT count(*) FROM dblock_reservation") != 0 {
		t.Errorf("bad input was written: %+v", b)
	}
}

// opens reports whether a Store can be opened.
func (s *env) opens(t *testing.T) error {
	store, closePool, err := s.e.Open(t.Context(), s.dsn, s.o)
	if err == nil {
		err = store.Close(t.Context())
		closePool()
	}
	return err
}

func checksTheSchema(t *testing.T, e Inventory) {
	var wrong *dblock.SchemaError
	if _, _, err := e.Open(t.Context(), testdb.DSN(t, e.Kind), inventory.Options{}); !errors.As(err, &wrong) || wrong.Have != 0 ||
		!errors.Is(err, dblock.ErrSchema) || !strings.Contains(err.Error(), "dblock migrate up") {
		t.Errorf("an empty database: %v", err)
	}
	s := e.env(t, inventory.Options{})
	s.stock(t, "sale", 10)
	s.Exec(t, "INSERT INTO dblock_schema_version (version_id, is_applied) VALUES (999, true)")
	if _, _, err := e.Open(t.Context(), s.dsn, s.o); !errors.As(err, &wrong) || wrong.Have != 999 {
		t.Errorf("a newer schema: %v", err)
	}
	s.Exec(t, "DELETE FROM dblock_schema_version WHERE version_id = 999")
	suite.RefusesUnsafeTables(t, e.Kind, "dblock_stock", func(statement string) { t.Helper(); s.Exec(t, statement) },
		func() error { return s.opens(t) })
	s.Exec(t, "ALTER TABLE dblock_reservation DROP COLUMN limited")
	if _, _, err := e.Open(t.Context(), s.dsn, s.o); !suite.IsDifferent(err, "dblock_reservation.limited") {
		t.Errorf("a column is missing: %v", err)
	}
	if err := suite.RefusesBadSessions(t, e.Kind, s.dsn, func(dsn string) error { _, _, err := e.Open(t.Context(), dsn, s.o); return err }); err != nil {
		t.Error(err)
	}
	s.Exec(t, "DELETE FROM dblock_schema_version WHERE version_id > 0")
	if _, _, err := e.Open(t.Context(), s.dsn, s.o); !errors.As(err, &wrong) || wrong.Have != 0 {
		t.Errorf("an older schema: %v", err)
	}
	for _, table := range schema.Tables() {
		s.Exec(t, "DROP TABLE "+table)
	}
	if _, err := s.Reserve(t.Context(), order("k", "sale", 1)); !errors.Is(err, dblock.ErrSchema) {
		t.Errorf("tables that went away: %v", err)
	}
	if _, err := s.Audit(t.Context()); !errors.Is(err, dblock.ErrSchema) {
		t.Errorf("tables that went away: %v", err)
	}
}

// usesASchemaOfTheHostsChoice names one that needs quoting, on the same server.
func usesASchemaOfTheHostsChoice(t *testing.T, e Inventory) {
	s := &env{e: e, dsn: testdb.DSN(t, e.Kind)}
	s.db = e.connect(t, s.dsn)
	s.o.Schema = "shop's ? $1 \"stock\" "
	if e.Kind != devdb.Postgres { // a database of its own: one that the server drops with the test
		cfg, err := mysql.ParseDSN(testdb.DSN(t, e.Kind))
		if err != nil {
			t.Fatal(err)
		}
		s.o.Schema = cfg.DBName
	}
	if _, err := migrations.Up(t.Context(), s.db, migrations.Options{Schema: s.o.Schema}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Open(t.Context(), s.dsn, inventory.Options{}); !errors.Is(err, dblock.ErrSchema) {
		t.Errorf("the tables stand where nobody looks, and yet: %v", err)
	}
	for sku, way := range ways {
		s.o.Direct, s.o.MaxInFlight = way.Direct, small(way).MaxInFlight
		s.Store = s.open(t, s.o)
		s.stock(t, sku, 50)
		for _, a := range crowd(t.Context(), s.Store, ordersOf(sku, 80, sku)) {
			if a.err != nil && !errors.Is(a.err, inventory.ErrSoldOut) {
				t.Errorf("%s: %v", a.req.Key, a.err)
			}
		}
		if b := s.balance(t, sku); b.Drift() != 0 || b.Sold != 50 {
			t.Errorf("%+v", b)
		}
	}
}

// runsWithTheDocumentedGrants sells as a user that has what docs/grants.md gives it, and no more.
func runsWithTheDocumentedGrants(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{})
	dsn := suite.ServiceUser(t, e.Kind, s.dsn, s.db)
	for sku, o := range ways {
		o.MaxInFlight, o.RecordRefusals = small(o).MaxInFlight, true
		store, closePool, err := e.Open(t.Context(), dsn, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(closePool)
		if _, err := store.Restock(t.Context(), inventory.Adjustment{ID: sku, SKU: sku, Delta: 50}); err != nil {
			t.Fatal(err)
		}
		reqs := ordersOf(sku, 80, sku)
		for _, a := range crowd(t.Context(), store, reqs) {
			if a.err != nil && !errors.Is(a.err, inventory.ErrSoldOut) {
				t.Errorf("%s: %v", a.req.Key, a.err)
			}
		}
		if _, err := store.Lookup(t.Context(), reqs[0].Key); err != nil {
			t.Error(err)
		}
		if _, err := store.Audit(t.Context()); err != nil {
			t.Error(err)
		}
		if b := s.balance(t, sku); b.Sold != 50 {
			t.Errorf("%+v", b)
		}
	}
	if _, err := e.connect(t, dsn).ExecContext(t.Context(), "DELETE FROM dblock_reservation"); err == nil {
		t.Error("the user may delete what was sold: it has more than was granted")
	}
	s.sound(t)
}

func saysWhenTheServerIsDown(t *testing.T, e Inventory) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	dsn := "root:hush@tcp(" + addr + ")/shop"
	if e.Kind == devdb.Postgres {
		dsn = "postgres://postgres:hush@" + addr + "/shop"
	}
	_, _, err = e.Open(t.Context(), dsn, inventory.Options{})
	if !errors.Is(err, dblock.ErrUnavailable) || !strings.Contains(err.Error(), addr) || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v", err)
	}
}
