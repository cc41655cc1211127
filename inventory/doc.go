// Package inventory sells stock that many buyers want at the same moment: a flash sale (seckill),
// tickets, coupons. It sells exactly what there is, gives every caller a definite answer, and
// answers a repeated order with what was recorded the first time.
//
//	store, err := pginventory.New(ctx, pool, inventory.Options{})     // Postgres, with pgx
//	store, err := mysqlinventory.New(ctx, db, inventory.Options{})    // MySQL and MariaDB
//
// # Contents
//
//   - Store.Reserve sells a Request; ReserveAll sells a Cart, all of it or none. ReserveTx and
//     ReserveAllTx of a driver do so in a transaction of the caller's.
//   - Request.Hold sets units aside until Store.Confirm, Cancel or, once the time is up, Sweep.
//     Extend prolongs a hold. RunSweeper sweeps in the background.
//   - Request.Limit bounds the units of one buyer.
//   - Store.Restock adds stock or takes it out. Lookup returns the Reservation under a key.
//   - Store.Audit and Repair are for operators.
//   - WithHook of a driver writes rows of your own in the commit of a sale.
//
// # A reservation
//
//	(none) ──Reserve──▶ sold                Request.Hold 0: at once
//	(none) ──Reserve──▶ held ──Confirm────▶ sold
//	                     │ ├───Cancel─────▶ cancelled
//	                     │ └───Sweep──────▶ expired      once its time is up
//	                     └─────Extend─────▶ held
//	(none) ──Cancel───▶ cancelled           an order that comes later is refused
//	(none) ──Reserve──▶ refused             with Options.RecordRefusals
//
// Sold, cancelled, expired and refused are final.
//
// # The way of an order
//
// An order passes through stages until one of them decides it. Each stage asks the database. What
// the process remembers of SKUs, keys and buyers (skuCache) only leaves stages out.
//
//	Reserve ─▶ validate ─▶ cache ─┬─▶ direct   one conditional UPDATE; with Options.Direct
//	                              ├─▶ sales    a batch, in the first of these ways that decides it:
//	                              │              sellAll    one statement: all orders or none
//	                              │              sellNew    one statement: those that are new
//	                              │              lockBucket    a transaction on this process's allotment
//	                              │              assumeNew  a transaction: lock, decide, write
//	                              │              lockAll    the same, and read what is recorded
//	                              ├─▶ looks    a batch that is read without a lock: orders that are
//	                              │            recorded, over a limit, or want more than is left
//	                              └─▶ sales    once more, with what is recorded at hand
//
// The ways differ in what they can decide and in their cost. One that does not decide a batch is
// followed by the next. lockAll decides everything. An order that needs a row which another
// transaction has locked waits in the lane of that lock, and its batch goes on without it. An order
// that is refused for its limit has the buyer's expired holds swept, and takes the way once more.
//
// # What is guaranteed
//
//   - Never oversold: units sold and held + units left = units restocked, at every commit. Audit
//     shows it.
//   - No buyer has more than an order's Limit, whatever runs at the same time.
//   - What is held is confirmed, cancelled or expires, and stays so. A later call returns which. A
//     Lookup, or an order that is sent again, may find a hold expired while a Confirm or Extend
//     that came in time is being committed.
//   - ErrSoldOut is never wrong: the Store returns it only after it has read all of the SKU's
//     stock, under its row locks or in one statement that began after the call. (With
//     Options.SoldOutTTL that read may be older, by so much.)
//   - Idempotent: an order is sold at most once per Key, from whatever process it is sent again,
//     and after whatever fault. A repeated key returns the recorded outcome with Replayed set; the
//     same key with other contents is ErrKeyReused.
//   - A nil error means that the sale is committed, as durably as the server is set to commit.
//
// # What is not
//
//   - A refusal is not recorded, unless Options.RecordRefusals is set: sent again after a restock,
//     the same order may be sold.
//   - After dblock.ErrOutcomeUnknown the order may or may not be sold. Send it again under the same
//     key to learn which. If that is refused, the first may still come through while the server
//     works on it, and Cancel makes sure that it does not.
//   - Fairness to the millisecond: within one process orders for one SKU are sent in the order of
//     their arrival, but up to two batches of them are under way at once on Postgres, and either
//     may come first. Between processes the database's row lock decides.
//
// # Keys
//
// The table of reservations is sorted by Key. In a crowd, keys that grow with time (UUIDv7, ULID, a
// sequence) sell a third faster than random ones, which fall all over the index.
//
// # Merged or direct
//
// Orders that arrive while a statement is in flight share the next one, so sales of one hot row are
// not bound by the flushes of the disk. A single order waits for no other. With Options.Direct each
// order runs one conditional UPDATE of its own. Both give the guarantees above, and both may sell
// the same SKU at the same time.
package inventory
