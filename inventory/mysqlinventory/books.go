package mysqlinventory

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Balances reads the books in one statement, and so in one snapshot.
func (d *database) Balances(ctx context.Context, skus []string) ([]driver.Balance, error) {
	balances, err := d.balances(ctx, d.reads(ctx), skus)
	return balances, sqlerr.Unwritten(err)
}

// reads returns what statements run on that read all rows: the server ends them when ctx ends. By
// itself it reads on when its client has left.
func (d *database) reads(ctx context.Context) mysqldb.DBTX {
	on := d.db.On(d.db)
	if deadline, bounded := ctx.Deadline(); bounded {
		return mysql.Within(on, time.Until(deadline))
	}
	return on
}

func (d *database) balances(ctx context.Context, on mysqldb.DBTX, skus []string) ([]driver.Balance, error) {
	rows, err := d.q.Balances(ctx, on, mysqldb.BalancesParams{Every: every(skus), Skus: blobs(skus)})
	return driver.Each(rows, func(r mysqldb.BalancesRow) driver.Balance {
		return driver.Balance{
			SKU: string(r.Sku), Available: r.Available, Allotted: r.Allotted, Held: r.Held, Sold: r.Sold, Restocked: r.Restocked,
		}
	}), err
}

// WrongQuotas reads in one statement, as Balances does.
func (d *database) WrongQuotas(ctx context.Context, skus []string) ([]string, error) {
	rows, err := d.q.WrongQuotas(ctx, d.reads(ctx), mysqldb.WrongQuotasParams{Every: every(skus), Skus: blobs(skus)})
	return driver.Each(rows, func(sku []byte) string { return string(sku) }), sqlerr.Unwritten(err)
}

// every is 1 if no SKUs are given, which means all of them.
func every(skus []string) int64 {
	if len(skus) == 0 {
		return 1
	}
	return 0
}
