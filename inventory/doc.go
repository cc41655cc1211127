// Package inventory sells stock that many buyers want at the same moment: a flash sale (seckill),
// tickets, coupons. It sells exactly what there is, gives every caller a definite answer, and
// answers a repeated order with what was recorded the first time.
//
// A Store comes from the engine room of your database:
//
//	store, err := pginventory.New(ctx, pool, inventory.Options{})     // Postgres, with pgx
//	store, err := mysqlinventory.New(ctx, db, inventory.Options{})    // MySQL and MariaDB
//
// # What is guaranteed
//
//   - Never oversold: units sold and held + units left = units restocked, at every commit. Audit shows it.
//   - No buyer has more than an order's Limit, whatever runs at the same time.
//   - What is held is confirmed, cancelled or expires, and stays so; whoever comes too late is told which. A Lookup, or
//     an order that is sent again, may find a hold expired while a Confirm or Extend that came in time is being committed.
//   - Never told sold out while what you ask for is left. The Store returns ErrSoldOut only after it
//     has read all of the SKU's stock, under its row locks or in one statement that began after the
//     call. (With Options.SoldOutTTL that read may be a moment older.)
//   - Idempotent: an order is sold at most once per Key, whoever sends it again, from wherever,
//     after whatever fault. A repeated key returns the recorded outcome with Replayed set; the
//     same key with other contents is ErrKeyReused.
//   - A nil error means that the sale is committed, as durably as the server is set to commit.
//
// # What is not
//
//   - A refusal is not recorded, unless Options.RecordRefusals is set: sent again after a restock,
//     the same order may be sold.
//   - After dblock.ErrOutcomeUnknown the order may or may not be sold. Send it again under the
//     same key to learn which; should that be refused, the first may still come through while the server works on it, and
//     Cancel makes sure that it does not.
//   - Fairness to the millisecond: within one process orders for one SKU are sent in the order of
//     their arrival, but up to two batches of them are under way at once on Postgres, and either may
//     come first. Between processes the database's row lock decides.
//
// # Keys
//
// The table of reservations is sorted by Key. Keys that grow with time (UUIDv7, ULID, a sequence) sell
// a third faster in a crowd than random ones, which fall all over the index.
//
// # Holds, limits and carts
//
// With Request.Hold the units are set aside until Confirm, Cancel or, when the time is up, Sweep. With Request.Limit a buyer gets so
// many at most. ReserveAll sells a cart, all or none. The engine rooms have ReserveTx, which sells in a transaction of yours, and
// WithHook, by which your own rows are written in the same commit. Audit and Repair are for the one who looks after it.
//
// # Merged or direct
//
// Orders that arrive while a statement is in flight share the next one, so sales of one hot row are not bound by the flushes of the
// disk. A lone order waits for no other. Options.Direct has each order run one conditional UPDATE of its own. Both give the guarantees
// above, and both may sell the same SKU at the same time. The ways that refuse a buyer who meets another one, and leave units unsold,
// are not in this package: `dblock demo` and `dblock bench` run them in plain SQL beside these two.
package inventory
