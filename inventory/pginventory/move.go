package pginventory

import (
	"context"
	"strconv"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// lockWait is driver.LockWaitOf in milliseconds.
func lockWait(ctx context.Context) string {
	return strconv.FormatInt(driver.LockWaitOf(ctx).Milliseconds(), 10)
}

// Move takes two round trips, as Transact does, or three if units come back.
func (d *database) Move(ctx context.Context, fn func(driver.MoveTx) error) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // which closes it if the transaction is still open
	tx := &moveTx{send: d.inBatch(conn)}
	tx.begin.add(postgres.BeginReadCommitted)
	tx.begin.addBound(lockWait(ctx), &tx.unconfirmed)
	tx.commit = func(ctx context.Context, trip statements) error {
		tx.sent = true
		return d.commit(ctx, conn, trip)
	}
	if err = fn(tx); err == nil && !tx.sent && tx.unconfirmed {
		tx.sent, err = true, rollbackAndConfirm(ctx, conn)
	}
	if err != nil || !tx.sent {
		postgres.RollbackConn(ctx, conn.Conn())
	}
	return err
}

// moveTx is a transaction of its own, or a caller's. In that it waits for no row, and neither
// begins nor commits.
type moveTx struct {
	begin  statements
	send   sender
	commit sender // nil in a caller's transaction
	sent   bool   // a commit

	unconfirmed bool // what is recorded: see driver.Books
}

func (t *moveTx) Reservations(ctx context.Context, keys []string, wait bool) (map[string][]driver.Row, map[string]bool, error) {
	var found []driver.Row
	lines := make(map[string]int64)
	trip, lock := t.begin, pgdb.LockFreeReservations
	if wait = wait && t.commit != nil; wait {
		lock = pgdb.LockReservations
	}
	trip.query(lock, each(func(r pgdb.LockReservationsRow) {
		found = append(found, driver.Row{
			Key: r.ReservationKey, Line: r.Line, SKU: r.Sku, Bucket: r.Bucket, Buyer: r.Buyer, Qty: r.Qty, State: r.State,
			Limited: r.Limited, Left: postgres.FromMicros(r.LeftUs),
		})
	}), keys)
	if !wait {
		trip.query(pgdb.KnownLines, each(func(r pgdb.KnownLinesRow) { lines[r.ReservationKey] = r.NumLines }), keys)
	}
	if err := t.send(ctx, trip); err != nil {
		return nil, nil, sqlerr.Unwritten(err)
	}
	t.unconfirmed = t.unconfirmed && len(found) > 0
	recorded := driver.ByKey(found)
	return recorded, driver.Partly(recorded, lines), nil
}

func (t *moveTx) Returns(ctx context.Context, m driver.Moves, waitQuotas, waitStock bool) (map[driver.Quota]bool, map[string]bool, error) {
	used, stock := make(map[driver.Quota]int64), make(map[string][]driver.Bucket)
	lockQuotas, lockBucket := pgdb.LockFreeQuotas, pgdb.LockFreeBucket
	if waitQuotas && t.commit != nil {
		lockQuotas = pgdb.LockQuotas
	}
	if waitStock && t.commit != nil {
		lockBucket = pgdb.LockBucket
	}
	var trip statements
	trip.addQuotas(lockQuotas, m.Quotas(), used)
	if skus := m.SKUs(); len(skus) > 0 {
		trip.addStock(lockBucket, stock, skus, int32(0))
	}
	if err := t.send(ctx, trip); err != nil {
		return nil, nil, sqlerr.Unwritten(err)
	}
	return driver.In(used), driver.In(stock), nil
}

// Write comes to new keys last, and waits no longer for another transaction that writes them.
func (t *moveTx) Write(ctx context.Context, m driver.Moves) error {
	var trip statements
	if t.commit != nil {
		trip.add(postgres.SetLockTimeout, lockTimeoutMs(ctx)) // of triggers of the host's
	}
	if len(m.Set) > 0 {
		keys, states, holds := setColumns(m.Set)
		trip.add(pgdb.SetReservations, keys, states, holds)
	}
	if len(m.Uncount) > 0 {
		skus, buyers, qtys, _ := countColumns(m.Uncount)
		trip.add(pgdb.UncountQuotas, skus, buyers, qtys)
	}
	if len(m.Return) > 0 {
		skus, buckets, qtys := unitColumns(m.Return)
		trip.add(pgdb.AddStock, skus, buckets, qtys)
	}
	if t.commit == nil {
		return t.send(ctx, trip)
	}
	if len(m.Insert) > 0 {
		trip.add(postgres.SetLockTimeout, lockWait(ctx))
		trip.addInsert(m.Insert)
	}
	return t.commit(ctx, trip)
}

func setColumns(set []driver.Set) (keys []string, states []int16, holdsUs []int64) {
	for _, s := range set {
		keys = append(keys, s.Key)
		states = append(states, s.State)
		holdsUs = append(holdsUs, s.Hold.Microseconds())
	}
	return keys, states, holdsUs
}

// Due returns held reservations that have expired.
func (d *database) Due(ctx context.Context, buyers []string, limit int) ([]driver.Due, error) {
	return alone(ctx, d, func(on pgdb.DBTX) ([]driver.Due, error) { return d.due(ctx, on, buyers, limit) })
}

func (d *database) due(ctx context.Context, on pgdb.DBTX, buyers []string, limit int) ([]driver.Due, error) {
	if len(buyers) == 0 {
		rows, err := d.q.DueReservations(ctx, on, int32(limit))
		return driver.Each(rows, func(r pgdb.DueReservationsRow) driver.Due {
			return driver.Due{Key: r.ReservationKey, Lines: int(r.NumLines)}
		}), sqlerr.Unwritten(err)
	}
	rows, err := d.q.DueOf(ctx, on, int32(limit), buyers)
	return driver.Each(rows, func(r pgdb.DueOfRow) driver.Due {
		return driver.Due{Key: r.ReservationKey, Quota: driver.Quota{SKU: r.Sku, Buyer: r.Buyer}}
	}), sqlerr.Unwritten(err)
}
