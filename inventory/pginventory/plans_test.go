package pginventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestPlansLookUpByKey: what is prepared while the tables are small reads none of them whole, as
// the plan is kept while they grow. The control is what the server would choose.
func TestPlansLookUpByKey(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	// Of a table that was never vacuumed the server believes that it has ten pages.
	if _, err := pool.Exec(t.Context(), `insert into dblock_reservation (reservation_key, sku, buyer, qty, state) values ('k', 'a', 'b', 1, 2);
		insert into dblock_stock (sku, available) values ('a', 1); insert into dblock_quota values ('a', 'b', 1, 1)`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "vacuum analyze dblock_reservation, dblock_stock, dblock_quota"); err != nil {
		t.Fatal(err)
	}
	chosen := 0
	for name, query := range map[string]string{
		"AddQuotas": pgdb.AddQuotas, "LockQuotas": pgdb.LockQuotas, "LockFreeQuotas": pgdb.LockFreeQuotas, "ReadQuotas": pgdb.ReadQuotas,
		"CountQuotas": pgdb.CountQuotas, "UncountQuotas": pgdb.UncountQuotas,
		"LockStock": pgdb.LockStock, "LockFreeStock": pgdb.LockFreeStock, "LockBucket": pgdb.LockBucket, "LockFreeBucket": pgdb.LockFreeBucket,
		"KnownBuckets": pgdb.KnownBuckets, "TakeStock": pgdb.TakeStock, "AddStock": pgdb.AddStock,
		"Reservations": pgdb.Reservations, "LockReservations": pgdb.LockReservations, "LockFreeReservations": pgdb.LockFreeReservations, "KnownLines": pgdb.KnownLines,
		"DueReservations": pgdb.DueReservations, "DueOf": pgdb.DueOf, "SetReservations": pgdb.SetReservations,
		"InsertOrders": pgdb.InsertOrders, "TakeBatch": pgdb.TakeBatch, "SellNew": pgdb.SellNew,
	} {
		if plan := generic(t, pool.Config().ConnConfig, query, true); readsAll(plan) {
			t.Errorf("%s:\n%s", name, plan)
		}
		if readsAll(generic(t, pool.Config().ConnConfig, query, false)) {
			chosen++
		}
	}
	if chosen < 10 {
		t.Errorf("left to itself the server reads whole tables in %d statements only", chosen)
	}
}

// generic returns the plan for any arguments.
func generic(t *testing.T, cfg *pgx.ConnConfig, query string, asWeDo bool) string {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if asWeDo {
		if _, err := tx.Exec(t.Context(), bound, "0"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.Exec(t.Context(), "set local plan_cache_mode = force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	prepared, err := tx.Prepare(t.Context(), "planned", query)
	if err != nil {
		t.Fatal(err)
	}
	nulls := strings.TrimSuffix(strings.Repeat("null, ", len(prepared.ParamOIDs)), ", ")
	rows, err := tx.Query(t.Context(), fmt.Sprintf("explain execute planned(%s)", nulls), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// readsAll reports whether a plan reads all of a table, or of its index.
func readsAll(plan string) bool {
	lines := strings.Split(plan, "\n")
	for i, line := range lines {
		if strings.Contains(line, "Seq Scan on") {
			return true
		}
		if strings.Contains(line, "Index Scan") || strings.Contains(line, "Index Only Scan") {
			if i+1 == len(lines) || !strings.Contains(lines[i+1], "Index Cond") {
				return true
			}
		}
	}
	return false
}
