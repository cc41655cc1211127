// Package pglock is dblock's locks on Postgres 14 or later, with pgx.
//
// A lease is the lock that survives everything: a row with a unique key. Its holder's heartbeat is
// judged by the server's clock, its token only grows, and a guard makes a holder harmless that was
// paused for too long:
//
//	leases, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{})
//	lock, err := leases.Acquire(ctx, "invoice-run")        // waits while ctx lives
//	defer lock.Release(ctx)
//	err = leases.GuardedTx(ctx, lock, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE invoice SET ...")   // commits only if the lock is still ours
//		return err
//	})
//
// It is held by one; with dblock.WithShared by many readers, or else one writer; with dblock.WithPermits as some of n
// permits; with AcquireAll as a set of keys, all or none; and with LeaseOptions.Fair in the order in which calls came, across
// processes. docs/locks.md says which of them is for what.
//
// A SessionLocker hands out the server's own locks of a connection (pg_advisory_lock), which many locks share: they write nothing, need no
// tables, end with their connection, and have no token for a guard to check. Where they would exclude nobody, on a standby or a pooler
// say, NewSessionLocker refuses. docs/server-locks.md says more.
//
// Without a table of dblock's, inside a transaction of yours: LockTx takes advisory locks that end with it, LockRow and LockRows lock
// rows of your own tables, and Claim takes some that nobody else has locked ("any free seat, now"). After a refusal that
// was asked for, by dblock.NoWait or WaitAtMost, the transaction can go on.
//
// The tables come from package migrations (`dblock migrate up`), the grants that a service needs
// from docs/grants.md.
package pglock
