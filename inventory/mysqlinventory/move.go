package mysqlinventory

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Move takes a few round trips, as Transact does.
func (d *database) Move(ctx context.Context, fn func(driver.MoveTx) error) error {
	return d.inTx(mysql.WithLockWait(ctx, driver.LockWaitOf(ctx)), func(on mysqldb.DBTX) (bool, error) {
		tx := &moveTx{d: d, on: on}
		err := fn(tx)
		return tx.written, err
	})
}

type moveTx struct {
	d       *database
	on      mysqldb.DBTX
	written bool
}

func (t *moveTx) Reservations(ctx context.Context, keys []string, wait bool) (map[string][]driver.Row, map[string]bool, error) {
	if wait {
		recorded, err := lockReservations(ctx, mysql.Within(t.on, driver.LockWaitOf(ctx)), mysqldb.LockReservations, keys)
		return recorded, nil, err
	}
	recorded, err := lockReservations(ctx, t.on, mysqldb.LockFreeReservations, keys)
	if err != nil {
		return nil, nil, err
	}
	known, err := t.d.q.KnownLines(ctx, t.on, blobs(keys))
	lines := make(map[string]int64, len(known))
	for _, k := range known {
		lines[string(k.ReservationKey)] = k.NumLines
	}
	return recorded, driver.Partly(recorded, lines), err
}

func (t *moveTx) Returns(ctx context.Context, m driver.Moves, waitQuotas, waitStock bool) (map[driver.Quota]bool, map[string]bool, error) {
	lockQuotas, lockBuckets, onQuotas, onBuckets := mysqldb.LockFreeQuotas, mysqldb.LockFreeFirstBuckets, t.on, t.on
	if waitQuotas {
		lockQuotas, onQuotas = mysqldb.LockQuotas, mysql.Within(t.on, driver.LockWaitOf(ctx))
	}
	if waitStock {
		lockBuckets, onBuckets = mysqldb.LockFirstBuckets, mysql.Within(t.on, driver.LockWaitOf(ctx))
	}
	used, skus := make(map[driver.Quota]int64), make(map[string]bool)
	if err := readQuotas(ctx, onQuotas, lockQuotas, m.Quotas(), used); err != nil {
		return nil, nil, err
	}
	err := queryAll(ctx, onBuckets, lockBuckets, m.SKUs(), textArgs, func(rows *sql.Rows) error {
		var sku []byte
		err := rows.Scan(&sku)
		skus[string(sku)] = true
		return err
	})
	return driver.In(used), skus, err
}

func (t *moveTx) Write(ctx context.Context, m driver.Moves) error {
	t.written = true
	return t.d.waited(ctx, t.d.writeMoves(ctx, t.d.bounded(ctx, t.on), m))
}

func lockReservations(ctx context.Context, on mysqldb.DBTX, query string, keys []string) (map[string][]driver.Row, error) {
	var found []mysqldb.ReservationsRow
	err := queryAll(ctx, on, query, keys, textArgs, func(rows *sql.Rows) error {
		var r mysqldb.ReservationsRow
		err := rows.Scan(&r.ReservationKey, &r.Line, &r.Sku, &r.Bucket, &r.Buyer, &r.Qty, &r.State, &r.Limited, &r.LeftUs)
		found = append(found, r)
		return err
	})
	return byKey(found), err
}

// writeMoves comes to new keys last, as Transact does: a transaction that waits for one of them
// then waits for the commit alone. It does not wait for one that writes them.
func (d *database) writeMoves(ctx context.Context, on mysqldb.DBTX, moves driver.Moves) error {
	if err := repeat(ctx, on, mysqldb.SetReservations, moves.Set, setArgs); err != nil {
		return err
	}
	if err := repeat(ctx, on, mysqldb.UncountQuotas, moves.Uncount, uncountArgs); err != nil {
		return err
	}
	if err := repeat(ctx, on, mysqldb.AddStock, moves.Return, unitArgs); err != nil {
		return err
	}
	if len(moves.Insert) == 0 {
		return nil
	}
	return d.insertAtOnce(ctx, on, moves.Insert)
}

func setArgs(s driver.Set) []any { return []any{[]byte(s.Key), s.State, s.Hold.Microseconds()} }

func uncountArgs(c driver.Count) []any { return append(quotaArgs(c.Quota), c.Qty) }

// Due returns held reservations that have expired.
func (d *database) Due(ctx context.Context, buyers []string, limit int) ([]driver.Due, error) {
	return d.due(ctx, d.db.On(d.db), buyers, limit)
}

func (d *database) due(ctx context.Context, on mysqldb.DBTX, buyers []string, limit int) ([]driver.Due, error) {
	if len(buyers) == 0 {
		rows, err := d.q.DueReservations(ctx, on, int32(limit))
		return driver.Each(rows, func(r mysqldb.DueReservationsRow) driver.Due {
			return driver.Due{Key: string(r.ReservationKey), Lines: int(r.NumLines)}
		}), sqlerr.Unwritten(err)
	}
	rows, err := d.q.DueOf(ctx, on, int32(limit), blobs(buyers))
	return driver.Each(rows, func(r mysqldb.DueOfRow) driver.Due {
		return driver.Due{Key: string(r.ReservationKey), Quota: driver.Quota{SKU: string(r.Sku), Buyer: string(r.Buyer)}}
	}), sqlerr.Unwritten(err)
}
