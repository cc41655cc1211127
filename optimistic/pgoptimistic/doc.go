// Package pgoptimistic is the driver of package optimistic for Postgres, with pgx. Package
// optimistic has the contract and the guarantees. Update and Do of this package know the server's
// errors and can take a lock (EscalateAfter, LockRow, LockRowAfter). NewTable is for tables without
// queries.
package pgoptimistic
