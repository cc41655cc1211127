package pginventory

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// lockWait is driver.LockWait in milliseconds.
var lockWait = strconv.FormatInt(driver.LockWait.Milliseconds(), 10)

// Move takes two round trips, as Transact does, or three if units come back.
func (d *database) Move(ctx context.Context, fn func(driver.MoveTx) error) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // which closes it where the transaction is still open
	tx := &moveTx{d: d, conn: conn}
	if err = fn(tx); err == nil && !tx.sent && tx.unconfirmed {
		tx.sent, err = true, rollbackAndConfirm(ctx, conn)
	}
	if err != nil || !tx.sent {
		postgres.RollbackConn(ctx, conn.Conn())
	}
	return err
}

type moveTx struct {
	d    *database
	conn *pgxpool.Conn
	sent bool // a commit

	unconfirmed bool // what is recorded: see driver.Books
}

func (t *moveTx) Reservations(ctx context.Context, keys []string, wait bool) (map[string][]driver.Row, map[string]bool, error) {
	recorded, lines := make(map[string][]driver.Row), make(map[string]int64)
	var batch pgx.Batch
	batch.Queue(postgres.BeginReadCommitted)
	queueBound(&batch, lockWait, &t.unconfirmed)
	if wait {
		t.d.queueKeys(&batch, pgdb.LockReservations, keys, recorded)
	} else {
		t.d.queueKeys(&batch, pgdb.LockFreeReservations, keys, recorded)
		batch.Queue(t.d.SQL(pgdb.KnownLines), keys).Query(func(rows pgx.Rows) error {
			return each(rows, func(r pgdb.KnownLinesRow) { lines[r.ReservationKey] = r.NumLines })
		})
	}
	if err := t.conn.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, nil, sqlerr.Unwritten(err)
	}
	t.unconfirmed = t.unconfirmed && len(recorded) > 0
	return recorded, driver.Partly(recorded, lines), nil
}

func (t *moveTx) Returns(ctx context.Context, m driver.Moves, waitQuotas, waitStock bool) (map[driver.Quota]bool, map[string]bool, error) {
	used, stock := make(map[driver.Quota]int64), make(map[string][]driver.Bucket)
	var batch pgx.Batch
	lockQuotas, lockBucket := pgdb.LockFreeQuotas, pgdb.LockFreeBucket
	if waitQuotas {
		lockQuotas = pgdb.LockQuotas
	}
	if waitStock {
		lockBucket = pgdb.LockBucket
	}
	t.d.queueQuotas(&batch, lockQuotas, m.Quotas(), used)
	if skus := m.SKUs(); len(skus) > 0 {
		t.d.queueStock(&batch, lockBucket, stock, skus, int32(0))
	}
	if err := t.conn.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, nil, sqlerr.Unwritten(err)
	}
	return driver.In(used), driver.In(stock), nil
}

// Write comes to new keys last, and waits no longer for another transaction that writes them.
func (t *moveTx) Write(ctx context.Context, m driver.Moves) error {
	t.sent = true
	var batch pgx.Batch
	batch.Queue(postgres.SetLockTimeout, lockTimeoutMs(ctx)) // of triggers of the host's
	if len(m.Set) > 0 {
		keys, states, holds := setColumns(m.Set)
		batch.Queue(t.d.SQL(pgdb.SetReservations), keys, states, holds)
	}
	if len(m.Uncount) > 0 {
		skus, buyers, qtys, _ := countColumns(m.Uncount)
		batch.Queue(t.d.SQL(pgdb.UncountQuotas), skus, buyers, qtys)
	}
	if len(m.Return) > 0 {
		skus, buckets, qtys := unitColumns(m.Return)
		batch.Queue(t.d.SQL(pgdb.AddStock), skus, buckets, qtys)
	}
	if len(m.Insert) > 0 {
		batch.Queue(postgres.SetLockTimeout, lockWait)
		t.d.queueInsert(&batch, m.Insert)
	}
	return commit(ctx, t.conn, &batch)
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
func (d *database) Due(ctx context.Context, limit int) ([]driver.Due, error) {
	rows, err := alone(ctx, d, func(on pgdb.DBTX) ([]pgdb.DueReservationsRow, error) {
		return d.q.DueReservations(ctx, on, int32(limit))
	})
	due := make([]driver.Due, len(rows))
	for i, r := range rows {
		due[i] = driver.Due{Key: r.ReservationKey, Lines: int(r.NumLines)}
	}
	return due, sqlerr.Unwritten(err)
}

// DueOf returns the keys of those that count against limits of some buyers.
func (d *database) DueOf(ctx context.Context, buyers []string, limit int) (map[driver.Quota][]string, error) {
	return alone(ctx, d, func(on pgdb.DBTX) (map[driver.Quota][]string, error) { return d.dueOf(ctx, on, buyers, limit) })
}

func (d *database) dueOf(ctx context.Context, on pgdb.DBTX, buyers []string, limit int) (map[driver.Quota][]string, error) {
	due, err := d.q.DueOf(ctx, on, int32(limit), buyers)
	keys := make(map[driver.Quota][]string)
	for _, r := range due {
		q := driver.Quota{SKU: r.Sku, Buyer: r.Buyer}
		keys[q] = append(keys[q], r.ReservationKey)
	}
	return keys, sqlerr.Unwritten(err)
}
