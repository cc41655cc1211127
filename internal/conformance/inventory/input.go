package inventory

import (
	"math"
	"net"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/migrations"
)

func (tests) RefusesBadInput(t *testing.T, s *env) {
	for _, sku := range []string{"", "a\x00", "\xff"} {
		assert.ErrorIs(t, suite.Second(s.Audit(t.Context(), sku)), dblock.ErrInvalid, "Audit of %q", sku)
	}
	s.stock(t, "sale", 10)
	for name, c := range map[string]struct {
		req  inventory.Request
		want error
	}{
		"unknown SKU":       {order("k", "nonsense", 1), inventory.ErrUnknownSKU},
		"quantity 0":        {order("k", "sale", 0), dblock.ErrInvalid},
		"negative quantity": {order("k", "sale", -1), dblock.ErrInvalid},
		"huge quantity":     {order("k", "sale", inventory.MaxQty+1), dblock.ErrInvalid},
		"over the stock":    {order("k", "sale", 11), inventory.ErrSoldOut},
		"most there can be": {order("k", "sale", inventory.MaxQty), inventory.ErrSoldOut},
		"empty key":         {order("", "sale", 1), dblock.ErrInvalid},
		"10 kB key":         {order(strings.Repeat("k", 10_000), "sale", 1), dblock.ErrInvalid},
		"256 byte key":      {order(strings.Repeat("k", 256), "sale", 1), dblock.ErrInvalid},
		"NUL in the key":    {order("a\x00b", "sale", 1), dblock.ErrInvalid},
		"no UTF-8 in key":   {order("a\xffb", "sale", 1), dblock.ErrInvalid},
		"empty SKU":         {order("k", "", 1), dblock.ErrInvalid},
		"10 kB SKU":         {order("k", strings.Repeat("s", 10_000), 1), dblock.ErrInvalid},
		"NUL in the SKU":    {order("k", "sa\x00le", 1), dblock.ErrInvalid},
		"NUL in the buyer":  {inventory.Request{Key: "k", SKU: "sale", Buyer: "\x00", Qty: 1}, dblock.ErrInvalid},
		"no UTF-8 in buyer": {inventory.Request{Key: "k", SKU: "sale", Buyer: "\xc3", Qty: 1}, dblock.ErrInvalid},
	} {
		assert.ErrorIs(t, suite.Second(s.Reserve(t.Context(), c.req)), c.want, name)
	}
	for name, a := range map[string]inventory.Adjustment{
		"empty ID":     {SKU: "sale", Delta: 1},
		"NUL in ID":    {ID: "\x00", SKU: "sale", Delta: 1},
		"empty SKU":    {ID: "k", Delta: 1},
		"huge delta":   {ID: "k", SKU: "sale", Delta: inventory.MaxQty + 1},
		"no UTF-8 SKU": {ID: "k", SKU: "\xff", Delta: 1},
	} {
		assert.ErrorIs(t, suite.Second(s.Restock(t.Context(), a)), dblock.ErrInvalid, name)
	}
	assert.ErrorIs(t, suite.Second(s.Lookup(t.Context(), "")), dblock.ErrInvalid, "an empty key")
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
		assert.ErrorIs(t, s.opens(t, s.DSN, o), dblock.ErrInvalid, name)
	}
	s.wantsBooks(t, "sale", 10, 0, 0)
	assert.Zero(t, s.Count(t, "SELECT count(*) FROM dblock_reservation"))
}

// opens reports whether a Store can be opened.
func (s *env) opens(t *testing.T, dsn string, o inventory.Options) error {
	store, closePool, err := s.e.Open(t.Context(), dsn, o)
	if err == nil {
		err = store.Close(t.Context())
		closePool()
	}
	return err
}

func (ownTests) ChecksTheSchema(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{})
	hasVersion := func(dsn string, version int64) {
		t.Helper()
		err := s.opens(t, dsn, s.o)
		assert.ErrorIs(t, err, dblock.ErrSchema)
		assert.ErrorContains(t, err, "dblock migrate up")
		assert.Equal(t, version, suite.As[*dblock.SchemaError](t, err).Have)
	}
	hasVersion(testdb.DSN(t, e.Kind), 0)
	s.stock(t, "sale", 10)
	s.Exec(t, "INSERT INTO dblock_schema_version (version_id, is_applied) VALUES (999, true)")
	assert.EqualValues(t, 999, suite.As[*dblock.SchemaError](t, s.opens(t, s.DSN, s.o)).Have)
	s.Exec(t, "DELETE FROM dblock_schema_version WHERE version_id = 999")
	suite.RefusesUnsafeTables(t, e.Kind, "dblock_stock", func(statement string) { t.Helper(); s.Exec(t, statement) },
		func() error { return s.opens(t, s.DSN, s.o) })
	s.Exec(t, "ALTER TABLE dblock_reservation DROP COLUMN limited")
	err := s.opens(t, s.DSN, s.o)
	assert.True(t, suite.IsDifferent(err, "dblock_reservation.limited"), "%v", err)
	assert.NoError(t, suite.RefusesBadSessions(t, e.Kind, s.DSN, func(dsn string) error { return s.opens(t, dsn, s.o) }))
	s.Exec(t, "DELETE FROM dblock_schema_version WHERE version_id > 0")
	hasVersion(s.DSN, 0)
	for _, table := range schema.Tables() {
		s.Exec(t, "DROP TABLE "+table)
	}
	assert.ErrorIs(t, suite.Second(s.Reserve(t.Context(), order("k", "sale", 1))), dblock.ErrSchema, "no tables")
	assert.ErrorIs(t, suite.Second(s.Audit(t.Context())), dblock.ErrSchema, "no tables")
}

// sellsInEachWay sells 50 units to 80 buyers in each way, in Stores with these options on dsn.
func (s *env) sellsInEachWay(t *testing.T, dsn string, o inventory.Options) {
	t.Helper()
	for sku, way := range ways {
		o.Direct, o.MaxInFlight = way.Direct, small(way).MaxInFlight
		store, closePool, err := s.e.Open(t.Context(), dsn, o)
		require.NoError(t, err)
		t.Cleanup(closePool)
		require.NoError(t, restock(t, store, sku, sku, 50))
		reqs := ordersOf(sku, 80, sku)
		assert.Len(t, soldIn(t, store, reqs), 50, sku)
		assert.NoError(t, suite.Second(store.Lookup(t.Context(), reqs[0].Key)))
		books := suite.Must(store.Audit(t.Context(), sku))(t)
		assert.Equal(t, []inventory.Balance{{SKU: sku, Restocked: 50, Sold: 50}}, books)
	}
}

// UsesASchemaOfTheHostsChoice names one that needs quoting, on the same server.
func (ownTests) UsesASchemaOfTheHostsChoice(t *testing.T, e Inventory) {
	s := &env{DB: suite.NewDB(t, e.Kind), e: e}
	o := inventory.Options{Schema: "shop's ? $1 \"stock\" ", RecordRefusals: true}
	if !s.Postgres() { // a database of its own: one that the server drops with the test
		o.Schema = suite.Must(mysql.ParseDSN(testdb.DSN(t, e.Kind)))(t).DBName
	}
	suite.Must(migrations.Up(t.Context(), s.DB.DB, migrations.Options{Schema: o.Schema}))(t)
	assert.ErrorIs(t, s.opens(t, s.DSN, inventory.Options{}), dblock.ErrSchema, "tables elsewhere")
	s.sellsInEachWay(t, s.DSN, o)
}

// RunsWithTheDocumentedGrants sells as a user that has what docs/grants.md gives it, and no more.
func (ownTests) RunsWithTheDocumentedGrants(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{})
	dsn := s.ServiceUser(t)
	s.sellsInEachWay(t, dsn, inventory.Options{RecordRefusals: true})
	_, err := suite.OpenDB(t, e.Kind, dsn).ExecContext(t.Context(), "DELETE FROM dblock_reservation")
	assert.Error(t, err, "it has more than was granted")
	s.sound(t)
}

func (faultTests) SaysWhenTheServerIsDown(t *testing.T, e Inventory) {
	listener := suite.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := listener.Addr().String()
	_ = listener.Close()
	dsn := "root:hush@tcp(" + addr + ")/shop"
	if e.Kind == devdb.Postgres {
		dsn = "postgres://postgres:hush@" + addr + "/shop"
	}
	_, _, err := e.Open(t.Context(), dsn, inventory.Options{})
	assert.ErrorIs(t, err, dblock.ErrUnavailable)
	assert.ErrorContains(t, err, addr)
	assert.NotContains(t, err.Error(), "hush")
}
