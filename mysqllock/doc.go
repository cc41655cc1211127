// Package mysqllock is dblock's locks on MySQL 8.0.16 or later and MariaDB 10.6 or later, through
// database/sql with github.com/go-sql-driver/mysql.
//
// A lease is the lock that survives everything: a row with a unique key. Its holder's heartbeat is
// judged by the server's clock, its token only grows, and a guard makes a holder harmless that was
// paused for too long:
//
//	leases, err := mysqllock.NewLeaseLocker(ctx, db, mysqllock.LeaseOptions{})
//	lock, err := leases.Acquire(ctx, "invoice-run")        // waits while ctx lives
//	defer lock.Release(ctx)
//	err = leases.GuardedTx(ctx, lock, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE invoice SET ...") // commits only if the lock is still ours
//		return err
//	})
//
// It is held by one; with dblock.WithShared by many readers, or else one writer; with dblock.WithPermits as some of n
// permits; with AcquireAll as a set of keys, all or none; and with LeaseOptions.Fair in the order in which calls came, across
// processes. docs/locks.md says which of them is for what.
//
// A SessionLocker hands out the server's own locks of a connection (GET_LOCK), which many locks share: they write nothing, need no
// tables, end with their connection, and have no token for a guard to check. Where they would exclude nobody, on a cluster or a replica
// say, NewSessionLocker refuses. docs/server-locks.md says more.
//
// Without a table of dblock's, inside a transaction of yours: LockRow and LockRows lock rows of your own tables, and Claim takes some
// that nobody else has locked ("any free seat, now"). These servers have no locks of names that end with a transaction: use LockRow.
//
// The tables come from package migrations (`dblock migrate up`), the grants that a service needs
// from docs/grants.md. No option of the DSN matters: not parseTime, loc, clientFoundRows,
// interpolateParams or multiStatements, nor sql_mode, time_zone or an isolation of READ COMMITTED or above. NewLeaseLocker
// refuses autocommit=0, READ UNCOMMITTED, a sql_select_limit, sql_safe_updates, a timestamp and a
// completion_type other than NO_CHAIN. The host returns connections to the pool without an open transaction,
// without a timestamp and with autocommit on. A lock that is acquired on another connection is not committed,
// and two may hold it. If the host sends USE, the options name the Schema. On MySQL a binary log has to have
// binlog_format ROW or MIXED, as a lease's row is made at READ UNCOMMITTED. A lease is as durable as
// the server's innodb_flush_log_at_trx_commit and sync_binlog say.
package mysqllock
