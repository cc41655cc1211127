// Package dblock is the contract of a toolkit of relational locks: what the engines for Postgres
// and for MySQL/MariaDB have in common, and nothing that needs a driver.
//
// A Locker hands out Locks: Acquire waits for one, TryAcquire does not, Do holds one while a function
// runs. A Lock is held by one, or beside others: WithShared is for readers, WithPermits for some of n permits. It has a
// context that ends when it is lost, and a Fence by which a guard checks it inside the transaction that writes what it
// protects. On Lockers rest an Elector, by which one of many processes leads, and a Quorum, a lock of several databases.
// docs/locks.md says which lock is for what. Lockers, and all else, come from below:
//
//	pglock        lease locks on Postgres, with pgx
//	mysqllock     lease locks on MySQL and MariaDB, with database/sql
//	dblocktest    the same in memory, for tests of your own
//	inventory     stock that many buyers want at once: sell exactly what there is
//	  pginventory     … on Postgres, with pgx
//	  mysqlinventory  … on MySQL and MariaDB, with database/sql
//	migrations    the tables, as goose files, and the calls that apply them
//	cmd/dblock    the command-line tool: demo, bench, lock, locks, unlock, migrate
package dblock
