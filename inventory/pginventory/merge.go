package pginventory

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Transact takes two round trips, whatever the size of the batch: one to lock and read, one to
// write and commit. The hot row is locked for one turn of the client's, the inserts and a flush.
func (d *database) Transact(ctx context.Context, ask driver.Ask, decide func(driver.Books) driver.Plan) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // which closes it where the transaction is still open
	books, err := d.read(ctx, conn, ask)
	if err != nil {
		postgres.RollbackConn(ctx, conn.Conn())
		return sqlerr.Unwritten(err)
	}
	plan := decide(books)
	switch {
	case len(plan.Insert) > 0:
		err = d.write(ctx, conn, plan)
	case books.Unconfirmed && len(books.Recorded) > 0:
		err = rollbackAndConfirm(ctx, conn)
	default:
		postgres.RollbackConn(ctx, conn.Conn()) // a commit of nothing but row locks would cost a flush
	}
	if err != nil {
		postgres.RollbackConn(ctx, conn.Conn())
	}
	return err
}

// Look reads in one round trip.
func (d *database) Look(ctx context.Context, ask driver.Ask) (driver.Books, error) {
	books := newBooks(ask)
	for _, q := range ask.Quotas {
		books.Used[q] = 0
	}
	var batch pgx.Batch
	queueBound(&batch, lockTimeoutMs(ctx), &books.Unconfirmed)
	d.queueQuotas(&batch, pgdb.SeeQuotas, ask.Quotas, books.Used)
	batch.Queue(d.SQL(pgdb.SeeUnits), ask.SKUs).Query(func(rows pgx.Rows) error {
		return each(rows, func(r pgdb.SeeUnitsRow) { books.Stock[r.Sku] = []driver.Bucket{{Left: r.Units}} })
	})
	d.queueKeys(&batch, pgdb.Reservations, ask.Keys, books.Recorded)
	conn, err := d.acquire(ctx)
	if err != nil {
		return books, err
	}
	defer conn.Release()
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return books, sqlerr.Unwritten(err)
	}
	return books, d.confirm(ctx, d.OnHost(conn), books)
}

func newBooks(ask driver.Ask) driver.Books {
	return driver.Books{
		Stock: make(map[string][]driver.Bucket, len(ask.SKUs)), Used: make(map[driver.Quota]int64, len(ask.Quotas)),
		Recorded: make(map[string][]driver.Row),
	}
}

// read begins the transaction, locks the quotas and the stock and reads what is recorded. The look-up is a
// statement of its own after the locks: only then its snapshot holds what others committed while
// we waited.
func (d *database) read(ctx context.Context, conn *pgxpool.Conn, ask driver.Ask) (driver.Books, error) {
	quotas := pgdb.LockFreeQuotas
	if ask.WaitQuotas {
		quotas = pgdb.LockQuotas
	}
	books := newBooks(ask)
	var batch pgx.Batch
	batch.Queue(postgres.BeginReadCommitted)
	queueBound(&batch, lockTimeoutMs(ctx), &books.Unconfirmed)
	if len(ask.Quotas) > 0 {
		skus, buyers := quotaColumns(ask.Quotas)
		batch.Queue(d.SQL(pgdb.MakeQuotas), skus, buyers)
	}
	d.queueQuotas(&batch, quotas, ask.Quotas, books.Used)
	waits, passes := ask.Waits()
	if ask.Own != 0 {
		d.queueStock(&batch, pgdb.LockBucket, books.Stock, ask.SKUs, ask.Own)
	} else {
		if len(waits) > 0 {
			d.queueStock(&batch, pgdb.LockStock, books.Stock, waits)
		}
		if len(passes) > 0 {
			d.queueStock(&batch, pgdb.LockFreeStock, books.Stock, passes)
		}
	}
	d.queueKeys(&batch, pgdb.Reservations, ask.Keys, books.Recorded)
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return driver.Books{}, err
	}
	skipped, err := d.skipped(ctx, d.OnHost(conn), ask, books.Stock)
	if err == nil && ask.Wait && len(skipped) > 0 { // it waited, and rows came into being meanwhile
		return d.readLocked(ctx, d.OnHost(conn), ask, books)
	}
	books.Skipped = func(sku string) bool { return skipped[sku] }
	return books, err
}

// skipped are the SKUs of which there are more rows than were locked. It asks only if the batch may take all units of
// those that were.
func (d *database) skipped(ctx context.Context, on pgdb.DBTX, ask driver.Ask, stock map[string][]driver.Bucket) (map[string]bool, error) {
	var short []string
	for _, sku := range ask.SKUs {
		left := int64(0)
		for _, b := range stock[sku] {
			left += b.Left
		}
		if left <= ask.Units[sku] {
			short = append(short, sku)
		}
	}
	if len(short) == 0 || ask.Own != 0 {
		return nil, nil
	}
	known, err := d.q.KnownBuckets(ctx, on, short)
	skipped := make(map[string]bool)
	for _, k := range known {
		if int64(len(stock[k.Sku])) < k.Buckets {
			skipped[k.Sku] = true
		}
	}
	return skipped, err
}

// readLocked locks the stock, and reads what is recorded, statement by statement.
func (d *database) readLocked(ctx context.Context, on pgdb.DBTX, ask driver.Ask, books driver.Books) (_ driver.Books, err error) {
	books.Skipped = func(string) bool { return false }
	if books.Stock, err = d.lockStock(ctx, on, ask.SKUs); err != nil || len(ask.Keys) == 0 {
		return books, err
	}
	books.Recorded, books.Unconfirmed, err = d.lookUp(ctx, on, ask.Keys)
	return books, err
}

// lockStock locks all buckets of SKUs. A statement that waits for a row locks none that came into being after it began, and what was
// in the one may be in the other: that was a process's first allotment. Whoever locks more than one row of an SKU locks the first one
// before, so that nobody is waited for crosswise.
func (d *database) lockStock(ctx context.Context, on pgdb.DBTX, skus []string) (map[string][]driver.Bucket, error) {
	for {
		rows, err := d.q.LockStock(ctx, on, skus)
		if err != nil {
			return nil, err
		}
		stock := make(map[string][]driver.Bucket, len(skus))
		for _, r := range rows {
			stock[r.Sku] = append(stock[r.Sku], driver.Bucket{Number: r.Bucket, Left: r.Available})
		}
		known, err := d.q.KnownBuckets(ctx, on, skus)
		more := func(k pgdb.KnownBucketsRow) bool { return int64(len(stock[k.Sku])) < k.Buckets }
		if err != nil || !slices.ContainsFunc(known, more) {
			return stock, err
		}
	}
}

func (d *database) queueQuotas(batch *pgx.Batch, query string, quotas []driver.Quota, used map[driver.Quota]int64) {
	if len(quotas) == 0 {
		return
	}
	skus, buyers := quotaColumns(quotas)
	batch.Queue(d.SQL(query), skus, buyers).Query(func(rows pgx.Rows) error {
		return each(rows, func(r pgdb.LockQuotasRow) { used[driver.Quota{SKU: r.Sku, Buyer: r.Buyer}] = r.Used })
	})
}

func (d *database) queueStock(batch *pgx.Batch, query string, stock map[string][]driver.Bucket, args ...any) {
	batch.Queue(d.SQL(query), args...).Query(func(rows pgx.Rows) error {
		return each(rows, func(r pgdb.LockStockRow) {
			stock[r.Sku] = append(stock[r.Sku], driver.Bucket{Number: r.Bucket, Left: r.Available})
		})
	})
}

func (d *database) queueKeys(batch *pgx.Batch, query string, keys []string, recorded map[string][]driver.Row) {
	if len(keys) == 0 {
		return
	}
	batch.Queue(d.SQL(query), keys).Query(func(rows pgx.Rows) error {
		return each(rows, func(r pgdb.ReservationsRow) {
			recorded[r.ReservationKey] = append(recorded[r.ReservationKey], row(r))
		})
	})
}

func row(r pgdb.ReservationsRow) driver.Row {
	return driver.Row{
		Key: r.ReservationKey, Line: r.Line, SKU: r.Sku, Bucket: r.Bucket, Buyer: r.Buyer, Qty: r.Qty, State: r.State,
		Limited: r.Limited, Left: postgres.FromMicros(r.LeftUs),
	}
}

// AwaitKeys writes the orders and takes them back, in one round trip.
func (d *database) AwaitKeys(ctx context.Context, rows []driver.Row) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	wait := awaitTimeout
	if driver.IsBrief(ctx) {
		wait = keyTimeout
	}
	var batch pgx.Batch
	batch.Queue(postgres.BeginReadCommitted)
	batch.Queue(postgres.SetLockTimeout, wait)
	p := insertColumns(rows)
	batch.Queue(d.SQL(pgdb.AwaitKeys), p.ReservationKeys, p.Skus, p.Buckets, p.Buyers, p.Qtys, p.States)
	batch.Queue("rollback")
	if err = conn.SendBatch(ctx, &batch).Close(); err != nil {
		postgres.RollbackConn(ctx, conn.Conn())
	}
	return sqlerr.Unwritten(err)
}

// write writes the plan and commits. Once this is sent, a lost connection leaves it open whether
// the commit took place.
func (d *database) write(ctx context.Context, conn *pgxpool.Conn, plan driver.Plan) error {
	var batch pgx.Batch
	batch.Queue(postgres.SetLockTimeout, keyTimeout)
	d.queueInsert(&batch, plan.Insert)
	if len(plan.Count) > 0 {
		skus, buyers, qtys, mosts := countColumns(plan.Count)
		batch.Queue(d.SQL(pgdb.CountQuotas), skus, buyers, qtys, mosts)
	}
	if len(plan.Take) > 0 {
		from, buckets, units := unitColumns(plan.Take)
		batch.Queue(d.SQL(pgdb.TakeStock), from, buckets, units)
	}
	if d.hook == nil {
		return orKeyOpen(commit(ctx, conn, &batch))
	}
	if err := d.runHook(ctx, conn, &batch, plan); err != nil {
		return sqlerr.Unwritten(err)
	}
	var end pgx.Batch
	end.Queue(postgres.CheckTx)
	err := commit(ctx, conn, &end)
	if postgres.IsTxEnded(err) {
		return driver.ErrHookEnded
	}
	return err
}

// commit sends a batch and a commit behind it.
func commit(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch) error {
	var tag string
	batch.Queue("commit").Exec(func(ct pgconn.CommandTag) error {
		tag = ct.String()
		return nil
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if tag != "COMMIT" {
		return sqlerr.Unwritten(errors.New("pginventory: the server answered " + tag + " to commit"))
	}
	return nil
}

func (d *database) queueInsert(batch *pgx.Batch, rows []driver.Row) {
	p := insertColumns(rows)
	batch.Queue(d.SQL(pgdb.InsertReservations),
		p.ReservationKeys, p.Lines, p.Skus, p.Buckets, p.Buyers, p.Qtys, p.States, p.Limits, p.HoldsUs)
}

func insertColumns(rows []driver.Row) (p pgdb.InsertReservationsParams) {
	for _, r := range rows {
		p.ReservationKeys = append(p.ReservationKeys, r.Key)
		p.Lines = append(p.Lines, r.Line)
		p.Skus = append(p.Skus, r.SKU)
		p.Buckets = append(p.Buckets, r.Bucket)
		p.Buyers = append(p.Buyers, r.Buyer)
		p.Qtys = append(p.Qtys, r.Qty)
		p.States = append(p.States, r.State)
		p.Limits = append(p.Limits, r.Limited)
		p.HoldsUs = append(p.HoldsUs, r.Hold.Microseconds())
	}
	return p
}

func unitColumns(units []driver.Units) (skus []string, buckets []int32, qtys []int64) {
	for _, u := range units {
		skus = append(skus, u.SKU)
		buckets = append(buckets, u.Bucket)
		qtys = append(qtys, u.Qty)
	}
	return skus, buckets, qtys
}

func quotaColumns(quotas []driver.Quota) (skus, buyers []string) {
	for _, q := range quotas {
		skus = append(skus, q.SKU)
		buyers = append(buyers, q.Buyer)
	}
	return skus, buyers
}

func countColumns(counts []driver.Count) (skus, buyers []string, qtys, mosts []int64) {
	for _, c := range counts {
		skus = append(skus, c.SKU)
		buyers = append(buyers, c.Buyer)
		qtys = append(qtys, c.Qty)
		mosts = append(mosts, c.Most)
	}
	return skus, buyers, qtys, mosts
}

// each calls f with every row, scanned into T's fields in their order.
func each[T any](rows pgx.Rows, f func(T)) error {
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	for _, r := range all {
		f(r)
	}
	return err
}
