// Package pglock is dblock's locks on Postgres 14 or later, with pgx.
//
// A lease survives lost connections: it is a row with a unique key. The server's clock decides
// whether its holder's heartbeats came in time, and its token only grows. A guard refuses the
// writes of a holder that was paused for too long:
//
//	leases, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{})
//	lock, err := leases.Acquire(ctx, "invoice-run")        // waits while ctx lives
//	defer lock.Release(ctx)
//	err = leases.GuardedTx(ctx, lock, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE invoice SET ...")   // commits only while the lock is held
//		return err
//	})
//
// A lease has one holder. With dblock.WithShared it has many readers or one writer, with
// dblock.WithPermits the holders of its permits. AcquireAll acquires a set of keys, all or none.
// With LeaseOptions.Fair callers of all processes are served in the order of their calls.
// docs/locks.md says which of them serves which purpose.
//
// A SessionLocker acquires the server's own locks of a connection (pg_advisory_lock). Many locks
// share a connection. They write nothing, need no tables, end with their connection, and have no
// token for a guard to check. NewSessionLocker refuses servers on which they would exclude no other
// session, for example a standby or a pooler. docs/server-locks.md says more.
//
// The following need no table of dblock's, and lock for a transaction of the caller's. LockTx
// acquires advisory locks. LockRow and LockRows lock rows of the caller's tables. Claim locks some
// rows that no other transaction has locked ("any free seat, now"). After a refusal with
// dblock.NoWait or WaitAtMost the transaction can go on.
//
// The tables come from package migrations (`dblock migrate up`), the grants that a service needs
// from docs/grants.md.
package pglock
