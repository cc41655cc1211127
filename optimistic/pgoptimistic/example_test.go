package pgoptimistic_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

// table is a row of a restaurant's tables.
type table struct {
	ID, Guests int
	Version    int64
}

func ExampleUpdate() {
	ctx := context.Background()
	url, done := testdb.ExampleDSN(devdb.Postgres) // yours: postgres://app@db.example/shop
	defer done()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	const create = "CREATE TABLE seating (id INT PRIMARY KEY, guests INT NOT NULL, version BIGINT NOT NULL)"
	for _, statement := range []string{create, "INSERT INTO seating VALUES (17, 0, 1)"} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			fmt.Println(err)
			return
		}
	}

	load := func(ctx context.Context, db pgoptimistic.DB) (t table, err error) {
		row := db.QueryRow(ctx, "SELECT id, guests, version FROM seating WHERE id = 17")
		return t, row.Scan(&t.ID, &t.Guests, &t.Version)
	}
	save := func(ctx context.Context, db pgoptimistic.DB, t table) (table, error) {
		const update = "UPDATE seating SET guests = $1, version = version + 1 WHERE id = $2 AND version = $3"
		result, err := db.Exec(ctx, update, t.Guests, t.ID, t.Version)
		at := optimistic.Row{Table: "seating", Key: t.ID, Expected: t.Version}
		t.Version++
		return t, optimistic.Tag(result, err, at)
	}
	seat := func(guests int, meanwhile func()) (table, error) {
		return pgoptimistic.Update(ctx, pool, load, func(_ context.Context, t *table) error {
			meanwhile()
			if t.Guests += guests; t.Guests > 4 {
				return fmt.Errorf("%d guests find no seat", guests)
			}
			return nil
		}, save,
			pgoptimistic.LockRowAfter(3, "seating", "id", 17),
			optimistic.OnConflict(func(err error, attempt int) { fmt.Println("attempt", attempt, "for", guests, "guests:", err) }))
	}
	others := func() { fmt.Println(seat(1, func() {})) }
	fmt.Println(seat(3, func() { others(); others = func() {} })) // another caller is faster
	fmt.Println(seat(2, func() {}))
	// Output:
	// {17 1 2} <nil>
	// attempt 1 for 3 guests: optimistic: seating 17, read at 1, has changed since; nothing was written: read it again and repeat the change
	// {17 4 3} <nil>
	// {0 0 0} 2 guests find no seat
}
