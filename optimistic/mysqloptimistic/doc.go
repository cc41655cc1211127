// Package mysqloptimistic is the driver of package optimistic for MySQL and MariaDB, with
// database/sql. Package optimistic has the contract and the guarantees. Update and Do of this
// package know the server's errors and can take a lock (EscalateAfter, LockRow, LockRowAfter).
// NewTable is for tables without queries.
package mysqloptimistic
