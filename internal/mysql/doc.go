// Package mysql is what every driver for MySQL and MariaDB needs. A file holds one idea:
//
//   - classify.go, codes.go: what an error means.
//   - server.go, product.go, processes.go: what is at the other end of a connection.
//   - table.go: what the server says of one table.
//   - schema.go, objects.go: where dblock's tables are, and whether server, session and tables meet
//     the requirements.
//   - text.go: statements as text with their arguments in place, each one round trip.
//   - tablewait.go: the bound on waits for tables.
//   - bind.go: statements with names and values of the host's own.
//   - insertid.go: a number that comes back with an UPDATE.
//   - pool.go, poolconn.go: a host's pool, and transactions with bounded waits.
//   - tx.go: a transaction whose end has a bound.
//
// # Statements as text
//
// dblock sends its own statements as text with their arguments in place. With placeholders the
// driver prepares, executes and closes every statement, unless the host's DSN says
// interpolateParams, on which nothing here depends. Arguments become numbers and hexadecimal
// literals, never quoted strings, so that no sql_mode and no character set changes their meaning.
//
// # Waits for locks
//
// A server goes on waiting for a lock after its client has left, for 50 s by default, and keeps the
// session. dblock bounds a wait to one second, which is the shortest bound that MySQL takes.
// MariaDB takes the bound with each statement: see Pool.Bounded. MySQL takes it for the session:
// Pool.In sets it before a transaction and restores the host's value afterwards. On MySQL dblock
// bounds waits for tables, too.
//
// In a file that needs the Go driver as well, the driver's import name is mysqldriver.
package mysql
