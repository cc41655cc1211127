package bench

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/dblock-go/dblock/internal/devdb"
)

// stockAll makes so many SKUs, as many deliveries would, in few statements; unless they are there.
func (s *store) stockAll(ctx context.Context, env *Env, skus int) error {
	driver := "mysql"
	if env.Kind == devdb.Postgres {
		driver = "pgx"
	}
	db, err := sql.Open(driver, env.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	var there int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM dblock_stock").Scan(&there); err != nil || there == skus {
		return err
	}
	const rows = 10_000
	for first := 0; first < skus; first += rows {
		var stock, ledger strings.Builder
		for i := first; i < min(first+rows, skus); i++ {
			if i > first {
				stock.WriteByte(',')
				ledger.WriteByte(',')
			}
			sku := "'sku-" + strconv.Itoa(i) + "'"
			stock.WriteString("(" + sku + ", 0, " + strconv.FormatInt(endless, 10) + ")")
			ledger.WriteString("(" + sku + ", " + sku + ", " + strconv.FormatInt(endless, 10) + ")")
		}
		for _, statement := range []string{
			"INSERT INTO dblock_stock (sku, bucket, available) VALUES " + stock.String(),
			"INSERT INTO dblock_adjustment (adjustment_id, sku, delta) VALUES " + ledger.String(),
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
	}
	return nil
}
