package schema_test

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/schema"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	if err := schema.Check(schema.Version); err != nil {
		t.Errorf("the right version is refused: %v", err)
	}
	for _, have := range []int64{0, schema.Version + 1} {
		err := schema.Check(have)
		var mismatch *dblock.SchemaError
		if !errors.As(err, &mismatch) || !errors.Is(err, dblock.ErrSchema) {
			t.Fatalf("Check(%d) = %v, want a *SchemaError", have, err)
		}
		if mismatch.Have != have || mismatch.Want != schema.Version {
			t.Errorf("Check(%d) says %+v", have, mismatch)
		}
	}
}

func TestQualify(t *testing.T) {
	t.Parallel()
	const sql = "SELECT 1 FROM dblock_stock JOIN dblock_reservation USING (sku);" +
		" ALTER TABLE dblock_adjustment ADD CONSTRAINT dblock_stock_not_negative CHECK (true);" +
		" SELECT 1 FROM dblock_schema_version, my_dblock_stock"
	const want = `SELECT 1 FROM "a$1""b".dblock_stock JOIN "a$1""b".dblock_reservation USING (sku);` +
		` ALTER TABLE "a$1""b".dblock_adjustment ADD CONSTRAINT dblock_stock_not_negative CHECK (true);` +
		` SELECT 1 FROM "a$1""b".dblock_schema_version, my_dblock_stock`
	if got := schema.Qualify(sql, `a$1"b`, schema.QuotePostgres); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := schema.Qualify(sql, "", schema.QuotePostgres); got != sql {
		t.Errorf("without a name the statement changed: %s", got)
	}
}
