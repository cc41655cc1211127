// Package mysqllock is dblock's locks on MySQL 8.0.16 or later and MariaDB 10.6 or later, through
// database/sql with github.com/go-sql-driver/mysql.
//
// A lease survives lost connections: it is a row with a unique key. The server's clock decides
// whether its holder's heartbeats came in time, and its token only grows. A guard refuses the
// writes of a holder that was paused for too long:
//
//	leases, err := mysqllock.NewLeaseLocker(ctx, db, mysqllock.LeaseOptions{})
//	lock, err := leases.Acquire(ctx, "invoice-run")        // waits while ctx lives
//	defer lock.Release(ctx)
//	err = leases.GuardedTx(ctx, lock, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE invoice SET ...") // commits only while the lock is held
//		return err
//	})
//
// A lease has one holder. With dblock.WithShared it has many readers or one writer, with
// dblock.WithPermits the holders of its permits. AcquireAll acquires a set of keys, all or none.
// With LeaseOptions.Fair callers of all processes are served in the order of their calls.
// docs/locks.md says which of them serves which purpose.
//
// A SessionLocker acquires the server's own locks of a connection (GET_LOCK). Many locks share a
// connection. They write nothing, need no tables, end with their connection, and have no token for
// a guard to check. NewSessionLocker refuses servers on which they would exclude no other session,
// for example a cluster or a replica. docs/server-locks.md says more.
//
// The following need no table of dblock's, and lock for a transaction of the caller's. LockRow and
// LockRows lock rows of the caller's tables. Claim locks some rows that no other transaction has
// locked ("any free seat, now"). These servers have no locks of names that end with a transaction:
// use LockRow.
//
// The tables come from package migrations (`dblock migrate up`), the grants that a service needs
// from docs/grants.md. No option of the DSN matters: not parseTime, loc, clientFoundRows,
// interpolateParams or multiStatements, nor sql_mode, time_zone or an isolation of READ COMMITTED
// or above. NewLeaseLocker refuses autocommit=0, READ UNCOMMITTED, a sql_select_limit,
// sql_safe_updates, a timestamp and a completion_type other than NO_CHAIN. Return connections to
// the pool without an open transaction, without a timestamp and with autocommit on. A lock that is
// acquired on others is not committed, and two may hold it. If your code sends USE, set
// LeaseOptions.Schema. On MySQL a binary log has to have binlog_format ROW or MIXED, as a lease's
// row is made at READ UNCOMMITTED. A lease is as durable as the server's
// innodb_flush_log_at_trx_commit and sync_binlog say.
package mysqllock
