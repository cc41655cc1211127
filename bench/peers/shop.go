package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
)

// shop is dblock's tables as hand-written code sells from them. Every hand-written seller has it,
// so that all of them leave the same rows.
type shop struct {
	db  *sql.DB
	say statements
}

// statements are what a shop says to its database.
type statements struct {
	stock  string // sku, units
	adjust string // id, sku, units
	left   string // sku
	take   string // sku: takes one unit, if there is one
	order  string // key, sku, buyer
	books  string // sku, three times: units in orders, and units gone from the stock
}

func statementsFor(kind devdb.Kind) statements {
	s := statements{
		stock:  "INSERT INTO dblock_stock (sku, available) VALUES (?, ?)",
		adjust: "INSERT INTO dblock_adjustment (adjustment_id, sku, delta) VALUES (?, ?, ?)",
		left:   "SELECT available FROM dblock_stock WHERE sku = ? AND bucket = 0",
		take:   "UPDATE dblock_stock SET available = available - 1 WHERE sku = ? AND bucket = 0 AND available >= 1",
		order:  "INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES (?, ?, ?, 1, 2)",
		books: "SELECT (SELECT COALESCE(SUM(qty), 0) FROM dblock_reservation WHERE sku = ? AND state = 2)," +
			" (SELECT SUM(delta) FROM dblock_adjustment WHERE sku = ?) -" +
			" (SELECT SUM(available) FROM dblock_stock WHERE sku = ?)",
	}
	if kind == devdb.Postgres {
		for _, text := range []*string{&s.stock, &s.adjust, &s.left, &s.take, &s.order, &s.books} {
			*text = numbered(*text)
		}
	}
	return s
}

// numbered writes $1, $2, … for question marks.
func numbered(query string) string {
	var b strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

func openShop(ctx context.Context, env *bench.Env) (*shop, error) {
	db, err := openSQL(ctx, env)
	if err != nil {
		return nil, err
	}
	return &shop{db, statementsFor(env.Kind)}, nil
}

func (s *shop) Close() error { return s.db.Close() }

// Stock makes a SKU, with the adjustment that explains its units.
func (s *shop) Stock(ctx context.Context, sku string, units int64) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, s.say.stock, sku, units); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, s.say.adjust, "stock of "+sku, sku, units)
		return err
	})
}

// Sold counts the units in orders. It is an error when not as many have left the stock.
func (s *shop) Sold(ctx context.Context, sku string) (int64, error) {
	var ordered, gone int64
	if err := s.db.QueryRowContext(ctx, s.say.books, sku, sku, sku).Scan(&ordered, &gone); err != nil {
		return 0, err
	}
	if ordered != gone {
		return 0, fmt.Errorf("there are orders for %d units, %d have left the stock", ordered, gone)
	}
	return ordered, nil
}

func (s *shop) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// openSQL opens a database/sql pool of env.Conns connections, all of them made, as applications set
// it up that care for speed: nothing is closed while idle, and MySQL statements go in one round trip
// instead of being prepared each time.
func openSQL(ctx context.Context, env *bench.Env) (*sql.DB, error) {
	connector, err := connectorFor(env)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(env.Conns)
	db.SetMaxIdleConns(env.Conns)
	if err := warm(ctx, db, env.Conns); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func connectorFor(env *bench.Env) (driver.Connector, error) {
	if env.Kind == devdb.Postgres {
		cfg, err := devdb.ParsePostgres(env.DSN)
		if err != nil {
			return nil, err
		}
		cfg.ConnConfig.Tracer = statementCounter{env}
		return stdlib.GetConnector(*cfg.ConnConfig), nil
	}
	cfg, err := devdb.ParseMySQL(env.DSN)
	if err != nil {
		return nil, err
	}
	cfg.InterpolateParams = true
	cfg.Logger = &mysql.NopLogger{} // what it would say is in the errors too
	return mysql.NewConnector(cfg)
}

// warm holds all connections at once, so that none is made while the clock runs.
func warm(ctx context.Context, db *sql.DB, n int) error {
	for range n {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // back to the pool
	}
	return nil
}

// statementCounter counts what database/sql sends to Postgres.
type statementCounter struct{ env *bench.Env }

func (c statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.env.Statements(1)
	return ctx
}

func (statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
