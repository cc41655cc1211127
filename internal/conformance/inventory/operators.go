package inventory

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/inventory"
)

// operatorsOfStockNeedTheirGrants audits, and looks up an order.
func operatorsOfStockNeedTheirGrants(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{})
	if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: "delivery", SKU: "lamp", Delta: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reserve(t.Context(), inventory.Request{Key: "order", SKU: "lamp", Buyer: "ann", Qty: 1}); err != nil {
		t.Fatal(err)
	}
	as, name := suite.GrantedUser(t, e.Kind, s.dsn, s.db, schema.PostgresOperatorGrants, schema.MySQLOperatorGrants)
	operator, closePool, err := e.Open(t.Context(), as, inventory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closePool)
	suite.EachGrantIsNeeded(t, e.Kind, s.db, name, suite.OfStock, func() error {
		_, audit := operator.Audit(t.Context())
		_, lookup := operator.Lookup(t.Context(), "order")
		return errors.Join(audit, lookup)
	})
}
