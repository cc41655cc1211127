// Package docs has the names that Go code in README.md and docs/ uses without declaring them.
// Blocks of the pages are type-checked together with this file.
package docs

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"gorm.io/gorm"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/optimistic/ent"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
)

var (
	ctx     context.Context
	err     error
	url     string
	pool    *pgxpool.Pool
	other   *pgxpool.Pool
	db      *sql.DB
	gormDB  *gorm.DB
	client  *ent.Client
	tx      pgx.Tx
	sqlTx   *sql.Tx
	leases  *pglock.LeaseLocker
	a, b, c dblock.Locker
	lock    *dblock.Lock
	fence   dblock.Fence
	store   *inventory.Store
	jobs    *queue.Queue
	tasks   []queue.Task
	task    queue.Task
	logger  *slog.Logger

	accounts *pgoptimistic.Table[int64]
	orders   *pgoptimistic.Table[int64]
	changes  []optimistic.Change[int64]
	at       optimistic.Row

	w http.ResponseWriter
	r *http.Request

	id, from, to, amount, balance, version, orderID, seen int64

	key, name, team, shop, orderKey string
)

// Account is a row of a service's table.
type Account struct{ ID, Balance, Version int64 }

// Welcome, Event, Call and Payment are arguments of jobs.
type (
	Welcome struct{ Address string }
	Event   struct{ Account string }
	Call    struct{ To string }
	Payment struct {
		To     string
		Amount int64
	}
)

func work(context.Context) error                                                      { return nil }
func workTx(context.Context, pgx.Tx) error                                            { return nil }
func transfer(context.Context, pgx.Tx) error                                          { return nil }
func report(context.Context, pgx.Tx) error                                            { return nil }
func send(ctx context.Context, address string) error                                  { return nil }
func insertOrders(context.Context, pginventory.HookTx, []inventory.Reservation) error { return nil }
