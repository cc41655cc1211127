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
//   - Never oversold: units sold + units left = units restocked, at every commit. Audit shows it.
//   - Never refused while what you ask for is left: ErrSoldOut is said only after the stock was
//     read under its row lock.
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
//     same key to learn which.
//   - Fairness between processes: within one process orders for one SKU are decided in the order
//     of their arrival, between processes the database's row lock decides.
//
// # Strategies
//
// Merge, the default, lets orders that arrive while a statement is in flight share the next one,
// and so is not bound by the disk's flushes a second on one hot row. Direct runs one conditional
// UPDATE an order. Both give the guarantees above.
package inventory
