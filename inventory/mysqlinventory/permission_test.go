package mysqlinventory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/inventory"
)

// TestChangesWithoutAPrivilege: a change is not the database's refusal of one order if the user
// lacks a privilege.
func TestChangesWithoutAPrivilege(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := suite.Migrated(t, kind)
			dsn, role := db.User(t, schema.PostgresServiceGrants, schema.MySQLServiceGrants)
			store, leave, err := open(t.Context(), dsn, inventory.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
			if _, err := store.Restock(t.Context(), inventory.Adjustment{ID: "a", SKU: "sale", Delta: 5}); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Reserve(t.Context(), inventory.Request{Key: "held", SKU: "sale", Qty: 1, Hold: time.Hour}); err != nil {
				t.Fatal(err)
			}
			for key, right := range map[string]string{"held": "UPDATE ON dblock_stock", "never sent": "INSERT ON dblock_reservation"} {
				db.Exec(t, "REVOKE "+right+" FROM "+role)
				if _, err := store.Cancel(t.Context(), key); !errors.Is(err, dblock.ErrPermission) || errors.Is(err, inventory.ErrRejected) {
					t.Errorf("without %s: %v", right, err)
				}
				db.Exec(t, "GRANT "+right+" TO "+role)
				if _, err := store.Cancel(t.Context(), key); err != nil && !errors.Is(err, inventory.ErrNotFound) {
					t.Errorf("with %s again: %v", right, err)
				}
			}
		})
	}
}
