package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
)

// TestInventory runs random programs of orders.
func TestInventory(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		run := func(prog inventoryProgram) verdict { return p.runInventory(t, prog, "") }
		check(t, 2*time.Second, drawInventory(false), run)
	})
}

// TestInventoryFaults runs random programs of orders with faults, and kills processes.
func TestInventoryFaults(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		run := func(prog inventoryProgram) verdict { return p.runInventory(t, prog, "") }
		check(t, 10*time.Second, drawInventory(true), run)
	})
}

// TestControlInventory has processes read what is left and write what is left then, and log that an
// order was sold which was refused: the checker notices.
func TestControlInventory(t *testing.T) {
	for control, c := range map[string]struct {
		stock int64
		want  string
	}{readsThenWrites: {200, "books"}, saysSold: {3, "order"}} {
		crowd := inventoryProcess{Stores: []storeOptions{{}}, Callers: []inventoryCaller{{
			Copies: 4, Times: 4, Steps: []inventoryStep{{Do: reserves, Qty: 1, Wait: 5 * time.Second}},
		}}}
		prog := inventoryProgram{Stock: []int64{c.stock, 0, 0}, Processes: []inventoryProcess{crowd, crowd}}
		for _, kind := range testdb.Engines()[:1] {
			if v := openPlace(t, kind).runInventory(t, prog, control); v.kind != c.want {
				t.Errorf("%s: the checker says %q, want %q: %s", control, v.kind, c.want, &v)
			}
		}
	}
}

// runInventory runs a program once.
func (p *place) runInventory(t *testing.T, prog inventoryProgram, control string) (v verdict) {
	run := fmt.Sprint("r", runs.Add(1))
	for sku, n := range prog.Stock {
		if n < 0 {
			continue
		}
		a := inventory.Adjustment{ID: fmt.Sprintf("%s-first-%d", run, sku), SKU: nameOf(run, sku), Delta: n}
		if _, err := p.store.Restock(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	var jobs []job
	killed := false
	for i, process := range prog.Processes {
		b, err := json.Marshal(process)
		if err != nil {
			t.Fatal(err)
		}
		killed = killed || process.Killed > 0
		jobs = append(jobs, job{
			What: "inventory", Kind: p.kind, DSN: p.dsn, Run: run, Process: i, Control: control, Killed: process.Killed,
			Program: b,
		})
	}
	s := &saboteur{kind: p.kind, db: p.db, run: run}
	var beside, after verdict
	logs := runAll(&v, jobs, func(ctx context.Context) {
		var strikes sync.WaitGroup
		strikes.Go(func() { s.strike(ctx, prog.Faults) })
		p.watchBooks(ctx, &beside, run)
		strikes.Wait()
	}, func(ctx context.Context) { p.allIsSold(ctx, &after, run) })
	if v.kind != "" {
		return v
	}
	all, err := readInventory(logs)
	if err != nil {
		t.Fatal(err)
	}
	all.faults = len(prog.Faults) > 0 || killed
	err = p.readTables(run, &all)
	for n := 0; err != nil && n < 20; n++ { // a fault has killed idle connections of the checker
		err = p.readTables(run, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkInventory(&v, all)
	p.checkBooks(context.Background(), &after, run)
	for _, other := range []verdict{beside, after} {
		for _, line := range other.lines {
			v.add(other.kind, "%s", line)
		}
	}
	return v
}

// watchBooks looks at the books until ctx ends. They are right at each commit.
func (p *place) watchBooks(ctx context.Context, v *verdict, run string) {
	for v.kind == "" {
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
			p.checkBooks(ctx, v, run)
		}
	}
}

// booksSQL sums what is left, what is held or sold, and what came in, in one snapshot. limitsSQL
// does so with what buyers have used of their limits: what the quotas say, what is held or sold,
// and what of that has not expired.
const (
	booksSQL = `SELECT sku, SUM(a), SUM(b), SUM(c) FROM (
		SELECT sku, available AS a, 0 AS b, 0 AS c FROM dblock_stock WHERE sku LIKE '%[1]s-%%'
		UNION ALL SELECT sku, 0, qty, 0 FROM dblock_reservation WHERE state IN (1, 2) AND bucket >= 0 AND sku LIKE '%[1]s-%%'
		UNION ALL SELECT sku, 0, 0, delta FROM dblock_adjustment WHERE sku LIKE '%[1]s-%%') AS x GROUP BY sku`
	limitsSQL = `SELECT who, SUM(a), SUM(b), SUM(c) FROM (
		SELECT concat(sku, ' of ', buyer) AS who, used AS a, 0 AS b, 0 AS c FROM dblock_quota WHERE sku LIKE '%[1]s-%%'
		UNION ALL SELECT concat(sku, ' of ', buyer), 0, qty, CASE WHEN state = 2 OR expires_at > %[2]s THEN qty ELSE 0 END
			FROM dblock_reservation WHERE limited AND state IN (1, 2) AND sku LIKE '%[1]s-%%') AS x GROUP BY who`
)

// checkBooks looks at the books. It sees nothing if a fault has hit its connection.
func (p *place) checkBooks(ctx context.Context, v *verdict, run string) {
	_ = p.each(ctx, fmt.Sprintf(booksSQL, run), func(rows rowScanner) error {
		var sku string
		var left, taken, came int64
		err := rows.Scan(&sku, &left, &taken, &came)
		if err == nil && (left != came-taken || taken > came) {
			v.add("books", "%d of %s are left, %d are held or sold, and %d came in", left, sku, taken, came)
		}
		return err
	})
	clock := "UTC_TIMESTAMP(6)"
	if p.kind == devdb.Postgres {
		clock = "clock_timestamp()"
	}
	_ = p.each(ctx, fmt.Sprintf(limitsSQL, run, clock), func(rows rowScanner) error {
		var who string
		var used, counts, alive int64
		err := rows.Scan(&who, &used, &counts, &alive)
		if err == nil && (used != counts || alive > buyerLimit) {
			v.add("limit", "%s: %d are counted, %d are held or sold, and %d of these have not expired", who, used, counts, alive)
		}
		return err
	})
}

// rowScanner is a row that a query has returned.
type rowScanner interface{ Scan(to ...any) error }

func (p *place) each(ctx context.Context, query string, row func(rowScanner) error) error {
	rows, err := p.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// allIsSold buys all units that are left, while all processes live that were not killed.
func (p *place) allIsSold(ctx context.Context, v *verdict, run string) {
	ctx, cancel := context.WithTimeout(ctx, freeWithin)
	defer cancel()
	for sku := range skus {
		left, n := int64(-1), 0
		for ctx.Err() == nil && left != 0 {
			query := fmt.Sprintf("SELECT coalesce(SUM(available), 0) FROM dblock_stock WHERE sku = '%s'", nameOf(run, sku))
			if err := p.db.QueryRowContext(ctx, query).Scan(&left); err != nil || left == 0 {
				continue
			}
			n++
			r := inventory.Request{Key: fmt.Sprintf("%s-last-%d-%d", run, sku, n), SKU: nameOf(run, sku), Qty: 1 + left/2}
			if _, err := p.store.Reserve(ctx, r); errors.Is(err, inventory.ErrSoldOut) {
				p.again(ctx, v, r, left)
			}
		}
		if left != 0 {
			v.add("stuck", "%d of SKU %d are left, and not for sale after %v", left, sku, freeWithin)
		}
	}
}

// again looks whether units that were refused are still there.
func (p *place) again(ctx context.Context, v *verdict, r inventory.Request, left int64) {
	var now int64
	query := fmt.Sprintf("SELECT coalesce(SUM(available), 0) FROM dblock_stock WHERE sku = '%s'", r.SKU)
	if err := p.db.QueryRowContext(ctx, query).Scan(&now); err == nil && now >= left {
		v.add("sold out", "%d of %s were refused, and %d are there", r.Qty, r.SKU, now)
	}
}

// readTables reads what the tables know of a run. What the checker has bought itself is not of it.
func (p *place) readTables(run string, all *inventoryLog) error {
	ctx := context.Background()
	all.rows, all.changes, all.effects = nil, map[string]inventory.Line{}, map[string]int{}
	orders := `SELECT reservation_key, sku, bucket, buyer, qty, state, limited
		FROM dblock_reservation WHERE reservation_key LIKE '%s-%%'`
	changes := "SELECT adjustment_id, sku, delta FROM dblock_adjustment WHERE sku LIKE '%s-%%'"
	effects := "SELECT task, count(*) FROM effect WHERE task LIKE '%s-%%' GROUP BY task"
	return errors.Join(
		p.each(ctx, fmt.Sprintf(orders, run), func(rows rowScanner) error {
			var r orderRow
			err := rows.Scan(&r.Key, &r.SKU, &r.Bucket, &r.Buyer, &r.Qty, &r.State, &r.Limited)
			if !strings.HasPrefix(r.Key, run+"-last-") {
				all.rows = append(all.rows, r)
			}
			return err
		}),
		p.each(ctx, fmt.Sprintf(changes, run), func(rows rowScanner) error {
			var id string
			var l inventory.Line
			err := rows.Scan(&id, &l.SKU, &l.Qty)
			all.changes[id] = l
			return err
		}),
		p.each(ctx, fmt.Sprintf(effects, run), func(rows rowScanner) error {
			var key string
			var n int
			err := rows.Scan(&key, &n)
			all.effects[key] = n
			return err
		}))
}
