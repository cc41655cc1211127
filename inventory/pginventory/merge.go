package pginventory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Transact takes two round trips, whatever the size of the batch: one to lock and read, one to
// write and commit. The hot row is locked for one turn of the client's, the inserts and a flush.
func (d *database) Transact(ctx context.Context, ask driver.ReadRequest, decide func(driver.Books) driver.Plan) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // which closes it if the transaction is still open
	books, err := d.begin(ctx, conn, ask)
	if isQuotaOpen(err) {
		postgres.RollbackConn(ctx, conn.Conn())
		if ask.Quotas, err = d.closedQuotas(ctx, conn, ask.Quotas); err == nil {
			books, err = d.begin(ctx, conn, ask)
		}
	}
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

// begin begins a transaction, and reads in it.
func (d *database) begin(ctx context.Context, conn *pgxpool.Conn, ask driver.ReadRequest) (driver.Books, error) {
	var begin statements
	begin.add(postgres.BeginReadCommitted)
	begin.add(bound, waitOf(ctx, ask))
	return d.read(ctx, d.inBatch(conn), d.OnHost(conn), begin, ask)
}

// waitOf is how long a transaction waits for a lock, in milliseconds.
func waitOf(ctx context.Context, ask driver.ReadRequest) string {
	if ask.InOrder {
		return strconv.FormatInt(driver.InOrderTime.Milliseconds(), 10)
	}
	return lockTimeoutMs(ctx)
}

// Read reads in one round trip.
func (d *database) Read(ctx context.Context, ask driver.ReadRequest) (driver.Books, error) {
	books := newBooks(ask)
	for _, q := range ask.Quotas {
		books.Used[q] = 0
	}
	var trip statements
	trip.add(bound, lockTimeoutMs(ctx))
	trip.addQuotas(pgdb.ReadQuotas, ask.Quotas, books.Used)
	if len(ask.SKUs) > 0 {
		trip.query(pgdb.ReadUnits, each(func(r pgdb.ReadUnitsRow) { books.Stock[r.Sku] = []driver.Bucket{{Left: r.Units}} }), ask.SKUs)
	}
	trip.addKeys(ask.Keys, &books)
	conn, err := d.acquire(ctx)
	if err != nil {
		return books, err
	}
	defer conn.Release()
	if err := d.inBatch(conn)(ctx, trip); err != nil {
		return books, sqlerr.Unwritten(err)
	}
	return books, d.confirm(ctx, d.OnHost(conn), books)
}

func newBooks(ask driver.ReadRequest) driver.Books {
	return driver.Books{
		Stock: make(map[string][]driver.Bucket, len(ask.SKUs)), Used: make(map[driver.Quota]int64, len(ask.Quotas)),
		Recorded: make(map[string][]driver.Row), Skipped: func(string) bool { return false },
	}
}

// read locks the quotas and the stock and reads what is recorded, behind the statements that begin
// the transaction. The look-up is a statement of its own after the locks: only then its snapshot
// holds what others committed while we waited.
func (d *database) read(ctx context.Context, send sender, on pgdb.DBTX, begin statements, ask driver.ReadRequest) (driver.Books, error) {
	quotas := pgdb.LockFreeQuotas
	if ask.WaitQuotas {
		quotas = pgdb.LockQuotas
	}
	books, trip, added := newBooks(ask), begin, ask.WaitQuotas
	if len(ask.Quotas) > 0 {
		if !ask.WaitQuotas {
			trip.add(postgres.SetLockTimeout, quotaTimeout)
		}
		trip.addMissing(ask.Quotas, func() { added = true })
		if !ask.WaitQuotas {
			trip.add(postgres.SetLockTimeout, waitOf(ctx, ask))
		}
	}
	trip.addQuotas(quotas, ask.Quotas, books.Used)
	waits, passes := ask.Waits()
	if ask.Bucket != 0 {
		trip.addStock(pgdb.LockBucket, books.Stock, ask.SKUs, ask.Bucket)
	} else {
		if len(waits) > 0 {
			trip.addStock(pgdb.LockStock, books.Stock, waits)
		}
		if len(passes) > 0 {
			trip.addStock(pgdb.LockFreeStock, books.Stock, passes)
		}
	}
	trip.addKeys(ask.Keys, &books)
	if err := send(ctx, trip); err != nil {
		if len(ask.Quotas) > 0 && !added && postgres.IsLocked(err) {
			err = &quotaOpenError{err}
		}
		return driver.Books{}, err
	}
	skipped, err := d.skipped(ctx, on, ask, books.Stock)
	if err == nil && ask.Wait && len(skipped) > 0 { // it waited, and rows were created meanwhile
		if books.Stock, err = d.lockStock(ctx, on, ask.SKUs); err != nil {
			return books, err
		}
		clear(books.Recorded)
		var again statements
		again.addKeys(ask.Keys, &books)
		return books, send(ctx, again)
	}
	if err == nil && ask.Lingers && len(skipped) > 0 {
		if err = d.linger(ctx, send, ask, &books, slices.Sorted(maps.Keys(skipped))); err == nil {
			skipped, err = d.skipped(ctx, on, ask, books.Stock)
		}
	}
	books.Skipped = func(sku string) bool { return skipped[sku] }
	return books, err
}

// linger waits for the stock of SKUs that was found locked. It leaves it if that takes long for all
// of them together.
func (d *database) linger(ctx context.Context, send sender, ask driver.ReadRequest, books *driver.Books, skus []string) error {
	found := newBooks(ask)
	var trip statements
	trip.add("savepoint linger")
	trip.add(beginWait)
	for _, sku := range skus {
		trip.add(boundRest, driver.InOrderTime.Milliseconds())
		trip.addStock(pgdb.LockStock, found.Stock, []string{sku})
	}
	trip.add(postgres.SetLockTimeout, lockTimeoutMs(ctx))
	trip.addKeys(ask.Keys, &found)
	err := send(ctx, trip)
	if postgres.Classify(err) == sqlerr.Busy {
		var back statements
		back.add("rollback to savepoint linger")
		return send(ctx, back)
	}
	maps.Copy(books.Stock, found.Stock)
	books.Recorded, books.Unconfirmed = found.Recorded, found.Unconfirmed
	return err
}

// skipped are the SKUs of which there are more rows than were locked. It asks only if the batch may
// take all units of those that were.
func (d *database) skipped(ctx context.Context, on pgdb.DBTX, ask driver.ReadRequest, stock map[string][]driver.Bucket) (map[string]bool, error) {
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
	if len(short) == 0 || ask.Bucket != 0 {
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

// lockStock locks all buckets of SKUs. A statement that waits for a row locks none that was created
// after it began, and what was in the one may be in the other: that was a process's first
// allotment. A transaction that locks more than one row of an SKU locks the first one before, so
// that none deadlocks with another.
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

func (s *statements) addQuotas(query string, quotas []driver.Quota, used map[driver.Quota]int64) {
	if len(quotas) > 0 {
		skus, buyers := quotaColumns(quotas)
		s.query(query, each(func(r pgdb.LockQuotasRow) { used[driver.Quota{SKU: r.Sku, Buyer: r.Buyer}] = r.Used }), skus, buyers)
	}
}

func (s *statements) addStock(query string, stock map[string][]driver.Bucket, args ...any) {
	s.query(query, each(func(r pgdb.LockStockRow) {
		stock[r.Sku] = append(stock[r.Sku], driver.Bucket{Number: r.Bucket, Left: r.Available})
	}), args...)
}

func (s *statements) addKeys(keys []string, books *driver.Books) {
	if len(keys) > 0 {
		s.query(pgdb.Reservations, each(func(r pgdb.ReservationsRow) {
			books.Unconfirmed = r.Unconfirmed
			books.Recorded[r.ReservationKey] = append(books.Recorded[r.ReservationKey], driver.Row{
				Key: r.ReservationKey, Line: r.Line, SKU: r.Sku, Bucket: r.Bucket, Buyer: r.Buyer, Qty: r.Qty, State: r.State,
				Limited: r.Limited, Left: postgres.FromMicros(r.LeftUs),
			})
		}), keys)
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
	p := insertColumns(rows)
	var trip statements
	trip.add(postgres.BeginReadCommitted)
	trip.add(postgres.SetLockTimeout, wait)
	trip.add(pgdb.AwaitKeys, p.ReservationKeys, p.Skus, p.Buckets, p.Buyers, p.Qtys, p.States)
	trip.add("rollback")
	if err = d.inBatch(conn)(ctx, trip); err != nil {
		postgres.RollbackConn(ctx, conn.Conn())
	}
	return sqlerr.Unwritten(err)
}

// write writes the plan and commits. Once this is sent, a lost connection leaves it open whether
// the commit took place.
func (d *database) write(ctx context.Context, conn *pgxpool.Conn, plan driver.Plan) error {
	var trip statements
	trip.add(postgres.SetLockTimeout, keyTimeout)
	trip.addPlan(plan)
	if d.hook == nil {
		return orKeyOpen(d.commit(ctx, conn, trip))
	}
	if err := d.runHook(ctx, conn, trip, plan); err != nil {
		return sqlerr.Unwritten(err)
	}
	var end statements
	end.add(postgres.CheckTx)
	err := d.commit(ctx, conn, end)
	if postgres.IsTxEnded(err) {
		return driver.ErrHookEnded
	}
	return err
}

// commit sends statements and a commit behind them.
func (d *database) commit(ctx context.Context, conn *pgxpool.Conn, trip statements) error {
	var tag string
	trip = append(trip, statement{sql: "commit", done: func(t string) { tag = t }})
	if err := d.inBatch(conn)(ctx, trip); err != nil {
		return err
	}
	if tag != "COMMIT" {
		return sqlerr.Unwritten(errors.New("pginventory: the server answered " + tag + " to commit"))
	}
	return nil
}

// addPlan adds what writes a plan.
func (s *statements) addPlan(plan driver.Plan) {
	s.addInsert(plan.Insert)
	if len(plan.Count) > 0 {
		skus, buyers, qtys, mosts := countColumns(plan.Count)
		s.add(pgdb.CountQuotas, skus, buyers, qtys, mosts)
	}
	if len(plan.Take) > 0 {
		skus, buckets, qtys := unitColumns(plan.Take)
		s.add(pgdb.TakeStock, skus, buckets, qtys)
	}
}

func (s *statements) addInsert(rows []driver.Row) {
	p := insertColumns(rows)
	s.add(pgdb.InsertReservations, p.ReservationKeys, p.Lines, p.Skus, p.Buckets, p.Buyers, p.Qtys, p.States, p.Limits, p.HoldsUs)
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
		mosts = append(mosts, c.Limit)
	}
	return skus, buyers, qtys, mosts
}
