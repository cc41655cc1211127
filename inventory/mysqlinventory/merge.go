package mysqlinventory

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Transact takes the same few round trips whatever the size of the batch. There is no statement
// that writes to two tables, and no way to send several at once that does not depend on the DSN.
func (d *database) Transact(ctx context.Context, ask driver.ReadRequest, decide func(driver.Books) driver.Plan) error {
	if d.hook == nil { // a hook's statements wait for a second at most
		ctx = patiently(ctx)
	}
	return d.db.In(ctx, func(conn *sql.Conn) (bool, error) {
		on := d.bounded(ctx, d.db.On(conn))
		books, err := d.read(ctx, on, ask)
		if err != nil {
			return false, d.waited(ctx, err)
		}
		known := buckets{ctx: ctx, on: on, d: d, skus: ask.SKUs}
		_, passes := ask.Waits()
		books.Skipped = func(sku string) bool {
			return slices.Contains(passes, sku) && int64(len(books.Stock[sku])) < known.of(sku)
		}
		plan := decide(books)
		if known.err != nil {
			return false, known.err
		}
		if len(plan.Insert) == 0 {
			return false, nil // a rollback needs no flush
		}
		if err := d.insertAtOnce(ctx, on, plan.Insert); err != nil {
			return true, err
		}
		if err := take(ctx, on, plan); err != nil || d.hook == nil {
			return true, d.waited(ctx, err)
		}
		return true, d.runHook(driver.HookContext(ctx), conn, plan)
	})
}

// Read takes a round trip for each of the three.
func (d *database) Read(ctx context.Context, ask driver.ReadRequest) (driver.Books, error) {
	books := driver.Books{
		Stock: make(map[string][]driver.Bucket, len(ask.SKUs)), Used: make(map[driver.Quota]int64, len(ask.Quotas)),
	}
	for _, q := range ask.Quotas {
		books.Used[q] = 0
	}
	on := d.db.On(d.db)
	err := readQuotas(ctx, on, mysqldb.ReadQuotas, ask.Quotas, books.Used)
	if err == nil && len(ask.SKUs) > 0 {
		var rows []mysqldb.ReadUnitsRow
		rows, err = d.q.ReadUnits(ctx, on, blobs(ask.SKUs))
		for _, r := range rows {
			books.Stock[string(r.Sku)] = []driver.Bucket{{Left: r.Units}}
		}
	}
	if err == nil {
		books.Recorded, err = d.recorded(ctx, on, ask.Keys)
	}
	return books, sqlerr.Unwritten(err)
}

// read locks the quotas and the stock and reads what is recorded. The look-up is a statement of its
// own after the locks: only then it sees what others committed while we waited.
func (d *database) read(ctx context.Context, on mysqldb.DBTX, ask driver.ReadRequest) (driver.Books, error) {
	var books driver.Books
	var err error
	if books.Used, err = d.lockQuotas(ctx, on, ask); err != nil {
		return books, err
	}
	waits, passes := ask.Waits()
	books.Stock = make(map[string][]driver.Bucket, len(ask.SKUs))
	if ask.Bucket != 0 {
		err = d.lockBucket(ctx, on, ask.SKUs[0], ask.Bucket, books.Stock)
	} else if ask.InOrder && !ask.Wait {
		_, err = lockInOrder(ctx, on, waits, books.Stock)
	} else if err = lockStock(ctx, on, mysqldb.LockStock, waits, books.Stock); err == nil {
		err = lockStock(ctx, on, mysqldb.LockFreeStock, passes, books.Stock)
		if err == nil && ask.Lingers {
			err = linger(ctx, on, passes, books.Stock)
		}
	}
	if err != nil {
		return books, err
	}
	books.Recorded, err = d.recorded(ctx, on, ask.Keys)
	return books, err
}

// lockQuotas returns those that it has locked. A transaction that waits for one has locked none
// that comes after it.
func (d *database) lockQuotas(ctx context.Context, on mysqldb.DBTX, ask driver.ReadRequest) (map[driver.Quota]int64, error) {
	used := make(map[driver.Quota]int64, len(ask.Quotas))
	if ask.WaitQuotas {
		if err := repeat(ctx, on, mysqldb.AddQuotas, ask.Quotas, quotaArgs); err != nil {
			return nil, err
		}
		return used, readQuotas(ctx, on, mysqldb.LockQuotas, ask.Quotas, used)
	}
	there := make(map[driver.Quota]int64, len(ask.Quotas))
	if err := readQuotas(ctx, on, mysqldb.ReadQuotas, ask.Quotas, there); err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(slices.Clone(ask.Quotas), func(q driver.Quota) bool { _, ok := there[q]; return ok })
	if err := d.addFree(ctx, on, missing); err != nil {
		return nil, err
	}
	return used, readQuotas(ctx, on, mysqldb.LockFreeQuotas, ask.Quotas, used)
}

// addFree inserts those of the missing quotas that no other transaction has locked. One that has
// inserted a row may have locked the gap before it, too: rows of other buyers can't be inserted
// there meanwhile. MySQL waits for such a gap for a second.
func (d *database) addFree(ctx context.Context, on mysqldb.DBTX, missing []driver.Quota) error {
	if d.db.MariaDB {
		return d.addAtOnce(ctx, mysql.AtOnce(on), missing)
	}
	missing, err := d.unlocked(ctx, on, missing)
	if err != nil {
		return err
	}
	return repeat(ctx, on, mysqldb.AddQuotas, missing, quotaArgs)
}

// addAtOnce inserts quotas, in halves if some are locked, and leaves those out.
func (d *database) addAtOnce(ctx context.Context, on mysqldb.DBTX, missing []driver.Quota) error {
	err := repeat(ctx, on, mysqldb.AddQuotas, missing, quotaArgs)
	if !isRowLocked(err) {
		return err
	}
	if !stands(ctx, on) {
		return err
	}
	if len(missing) == 1 {
		return nil
	}
	half := len(missing) / 2
	if err := d.addAtOnce(ctx, on, missing[:half]); err != nil {
		return err
	}
	return d.addAtOnce(ctx, on, missing[half:])
}

// stands reports whether a transaction goes on after a wait that timed out: with
// innodb_rollback_on_timeout it has ended, and no savepoint lasts.
func stands(ctx context.Context, on mysqldb.DBTX) bool {
	for _, statement := range []string{"SAVEPOINT dblock_stands", "RELEASE SAVEPOINT dblock_stands"} {
		if _, err := on.ExecContext(ctx, statement); err != nil {
			return false
		}
	}
	return true
}

// unlocked returns those of the missing quotas that no other transaction is inserting. On MySQL an
// INSERT would wait for that transaction for a second. Quotas that are being inserted are found in
// halves, without a wait.
func (d *database) unlocked(ctx context.Context, on mysqldb.DBTX, missing []driver.Quota) ([]driver.Quota, error) {
	if len(missing) == 0 {
		return missing, nil
	}
	err := readQuotas(ctx, on, mysqldb.LockQuotasNoWait, missing, make(map[driver.Quota]int64))
	switch {
	case err == nil:
		return missing, nil
	case !isRowLocked(err):
		return nil, err
	case len(missing) == 1:
		return nil, nil
	}
	half := len(missing) / 2
	first, err := d.unlocked(ctx, on, missing[:half])
	if err != nil {
		return nil, err
	}
	others, err := d.unlocked(ctx, on, missing[half:])
	return slices.Concat(first, others), err
}

// readQuotas runs a query for quotas, and notes what is used of each that it returns.
func readQuotas(ctx context.Context, on mysqldb.DBTX, query string, quotas []driver.Quota, used map[driver.Quota]int64) error {
	return queryAll(ctx, on, query, quotas, quotaArgs, func(rows *sql.Rows) error {
		var r mysqldb.LockQuotasRow
		err := rows.Scan(&r.Sku, &r.Buyer, &r.Used)
		used[driver.Quota{SKU: string(r.Sku), Buyer: string(r.Buyer)}] = r.Used
		return err
	})
}

// lockStock locks the buckets of SKUs with the given statement.
func lockStock(ctx context.Context, on mysqldb.DBTX, query string, skus []string, stock map[string][]driver.Bucket) error {
	return queryAll(ctx, on, query, skus, textArgs, func(rows *sql.Rows) error {
		var r mysqldb.LockStockRow
		err := rows.Scan(&r.Sku, &r.Bucket, &r.Available)
		sku := string(r.Sku)
		stock[sku] = append(stock[sku], driver.Bucket{Number: r.Bucket, Left: r.Available})
		return err
	})
}

// lockInOrder locks the buckets of SKUs in their order. It asks for them without a wait, again and
// again, as the server counts waits in seconds. Each time it keeps those before the first that is
// locked. stood reports that the transaction goes on after an error.
func lockInOrder(ctx context.Context, on mysqldb.DBTX, skus []string, stock map[string][]driver.Bucket) (stood bool, err error) {
	for began := time.Now(); ; clear(stock) {
		err := lockStock(ctx, on, mysqldb.LockStockNoWait, skus, stock)
		if !isRowLocked(err) {
			return stood, err
		}
		if stood = stood || stands(ctx, on); !stood {
			return false, err
		}
		if time.Since(began) >= driver.InOrderTime || pace.Sleep(ctx, pace.Jitter(time.Millisecond)) != nil {
			return true, err
		}
	}
}

// linger waits for the stock of those SKUs of which all was found locked, and leaves it if that
// takes long.
func linger(ctx context.Context, on mysqldb.DBTX, skus []string, stock map[string][]driver.Bucket) error {
	locked := slices.DeleteFunc(slices.Clone(skus), func(sku string) bool { return len(stock[sku]) > 0 })
	found := make(map[string][]driver.Bucket)
	if stood, err := lockInOrder(ctx, on, locked, found); err != nil {
		if stood && isRowLocked(err) {
			return nil
		}
		return err
	}
	maps.Copy(stock, found)
	return nil
}

// buckets counts the buckets of each SKU, locked or not, when that is first asked: it matters if an
// order does not fit, or nothing is left.
type buckets struct {
	ctx   context.Context
	on    mysqldb.DBTX
	d     *database
	skus  []string
	known map[string]int64
	err   error
}

func (b *buckets) of(sku string) int64 {
	if b.known == nil {
		b.known = make(map[string]int64, len(b.skus))
		var rows []mysqldb.KnownBucketsRow
		rows, b.err = b.d.q.KnownBuckets(b.ctx, b.on, blobs(b.skus))
		for _, r := range rows {
			b.known[string(r.Sku)] = r.Buckets
		}
	}
	return b.known[sku]
}

// recorded are the reservations under keys, their lines in order.
func (d *database) recorded(ctx context.Context, on mysqldb.DBTX, keys []string) (map[string][]driver.Row, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	found, err := d.q.Reservations(ctx, on, blobs(keys))
	return byKey(found), err
}

func byKey(found []mysqldb.ReservationsRow) map[string][]driver.Row {
	rows := make(map[string][]driver.Row, len(found))
	for _, r := range found {
		key := string(r.ReservationKey)
		rows[key] = append(rows[key], driver.Row{
			Key: key, Line: r.Line, SKU: string(r.Sku), Bucket: r.Bucket, Buyer: string(r.Buyer), Qty: r.Qty, State: r.State,
			Limited: r.Limited, Left: time.Duration(r.LeftUs) * time.Microsecond,
		})
	}
	return rows
}

// insertAtOnce writes orders, and fails if another open transaction writes one of them: it does not
// wait with the stock locked. MariaDB bounds the wait of the statement. MySQL can't bound it below
// a second, but finds out before, and waits only for a transaction that comes in between.
func (d *database) insertAtOnce(ctx context.Context, on mysqldb.DBTX, rows []driver.Row) error {
	if d.db.MariaDB {
		on = mysql.AtOnce(on)
	} else if err := lockAtOnce(ctx, on, rows); err != nil {
		return orKeyOpen(err)
	}
	return orKeyOpen(repeat(ctx, on, mysqldb.InsertReservations, rows, rowArgs))
}

// lockAtOnce locks the reservations under the keys of rows, or fails.
func lockAtOnce(ctx context.Context, on mysqldb.DBTX, rows []driver.Row) error {
	return queryAll(ctx, on, mysqldb.LockKeysNoWait, keysOf(rows), textArgs, func(*sql.Rows) error { return nil })
}

// keysOf are the keys of rows, none twice.
func keysOf(rows []driver.Row) (keys []string) {
	for _, r := range rows {
		if r.Line == 0 {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// AwaitKeys locks the reservations, and lets go of them.
func (d *database) AwaitKeys(ctx context.Context, rows []driver.Row) error {
	return d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		if driver.IsBrief(ctx) {
			err = lockAtOnce(ctx, on, rows)
		} else {
			_, err = lockReservations(ctx, on, mysqldb.LockReservations, keysOf(rows))
		}
		if isRowLocked(err) {
			err = &bounded{err}
		}
		return false, err
	})
}

func write(ctx context.Context, on mysqldb.DBTX, plan driver.Plan) error {
	if err := repeat(ctx, on, mysqldb.InsertReservations, plan.Insert, rowArgs); err != nil {
		return orKeyOpen(err)
	}
	return take(ctx, on, plan)
}

// take counts what was written.
func take(ctx context.Context, on mysqldb.DBTX, plan driver.Plan) error {
	if err := repeat(ctx, on, mysqldb.CountQuotas, plan.Count, countArgs); err != nil {
		return err
	}
	return repeat(ctx, on, mysqldb.TakeStock, plan.Take, unitArgs)
}

// repeat runs a statement that has one row of VALUES for each of all, if there are any; several if
// the server takes no longer one.
func repeat[T any](ctx context.Context, on mysqldb.DBTX, query string, all []T, args func(T) []any) error {
	_, err := mysql.ExecAll(ctx, on, query, len(all), flat(all, args))
	return err
}

// queryAll runs a query that has one SELECT of ask for each of all, if there are any, and calls
// scan with every row. It runs several if the server takes no longer one.
func queryAll[T any](
	ctx context.Context, on mysqldb.DBTX, query string, all []T, args func(T) []any, scan func(*sql.Rows) error,
) error {
	return mysql.QueryAll(ctx, on, query, len(all), flat(all, args), scan)
}

func flat[T any](all []T, args func(T) []any) (flat []any) {
	for _, one := range all {
		flat = append(flat, args(one)...)
	}
	return flat
}

func rowArgs(r driver.Row) []any {
	var limited int16
	if r.Limited {
		limited = 1
	}
	return []any{
		[]byte(r.Key), r.Line, []byte(r.SKU), r.Bucket, []byte(r.Buyer), r.Qty, r.State, limited, r.Hold.Microseconds(),
	}
}

func quotaArgs(q driver.Quota) []any { return []any{[]byte(q.SKU), []byte(q.Buyer)} }

func countArgs(c driver.Count) []any { return append(quotaArgs(c.Quota), c.Qty, c.Limit) }

func textArgs(text string) []any { return []any{[]byte(text)} }

func unitArgs(u driver.Units) []any { return []any{[]byte(u.SKU), u.Bucket, u.Qty} }

func blobs(texts []string) [][]byte {
	return driver.Each(texts, func(s string) []byte { return []byte(s) })
}

// lockBucket is lockStock for one row.
func (d *database) lockBucket(ctx context.Context, on mysqldb.DBTX, sku string, number int32, stock map[string][]driver.Bucket) error {
	rows, err := d.q.LockBucket(ctx, on, []byte(sku), number)
	for _, r := range rows {
		stock[sku] = append(stock[sku], driver.Bucket{Number: r.Bucket, Left: r.Available})
	}
	return err
}
