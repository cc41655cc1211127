// Package dblock is the contract of locks that Postgres, MySQL and MariaDB keep, and the errors
// that all packages of the toolkit share. It imports no database driver.
//
// A Locker acquires locks: Acquire waits for one, TryAcquire does not, Do holds one while a
// function runs. Options choose how:
//
//	WithShared, WithPermits          held by many readers, or by at most n holders; default: by one
//	WithMaxHold, WithoutRenewal      an end, with or without heartbeats; default: until Release
//	WithReentrant                    once more within the same call
//	WithLabel, WithData              what others read of the holder
//
// A Lock has a context that ends when the lock is lost, and a Fence. A guard checks the fence
// inside the transaction that writes what the lock protects. An Elector makes one of many processes
// lead, and a Quorum acquires a lock on a majority of several databases. RowLock and TxWait say how
// transactions lock rows and keys. docs/locks.md says which lock serves which purpose.
//
// Lockers, and everything else, are made by these packages:
//
//	pglock                leases, session, transaction and row locks on Postgres, with pgx
//	mysqllock             leases, session and row locks on MySQL and MariaDB, with database/sql
//	dblocktest            leases in memory, for tests of services
//
//	optimistic            updates of rows by their version, without locks
//	  pgoptimistic        … on Postgres
//	  mysqloptimistic     … on MySQL and MariaDB
//	queue                 jobs in the service's own database, and workers that run them
//	  pgqueue             … on Postgres
//	  mysqlqueue          … on MySQL and MariaDB
//	inventory             stock that many buyers want at once: sells exactly what there is
//	  pginventory         … on Postgres
//	  mysqlinventory      … on MySQL and MariaDB
//
//	migrations            dblock's tables, as goose files, and the calls that apply them
//	db/pgdb, db/mysqldb   generated queries; they carry no promise of compatibility
//	cmd/dblock            the command line: doctor, lock, locks, unlock, permits, queue, migrate, …
package dblock
