// Package mysql is what every driver for MySQL and MariaDB needs. A file holds one idea:
//
//   - classify.go, codes.go: what an error means.
//   - server.go, product.go, processes.go: what is at the other end of a connection.
//   - table.go: what the server says of one table.
//   - schema.go, objects.go: whether server, session and tables meet the requirements.
//   - database.go: where dblock's tables are, and what the server takes.
//   - text.go, template.go: statements as text with their arguments in place, each one round trip.
//   - batch.go: one statement for many rows, or several if the server takes no longer one.
//   - rowwait.go, tablewait.go: the bounds on waits for rows and for tables.
//   - bind.go: statements with names and values of the host's own.
//   - insertid.go: a number that comes back with an UPDATE.
//   - pool.go, poolconn.go: a host's pool, and transactions with bounded waits.
//   - tx.go: a transaction whose end has a bound.
//   - member.go: the heartbeat, on a connection of its own.
//
// # Statements as text
//
// dblock sends its own statements as text with their arguments in place. With placeholders the
// driver prepares, executes and closes every statement, unless the host's DSN says
// interpolateParams, on which nothing here depends. Arguments become numbers and hexadecimal
// literals, never quoted strings, so that no sql_mode and no character set changes their meaning.
//
// A statement for a batch repeats a part. In queries/mysql comments mark it, which sqlc keeps:
//
//	INSERT INTO t (a, b) VALUES /*dblock:rows*/(?, ?)/*dblock:end*/
//
// The marked statement is one for a single row, so sqlc and every server prepare it as it is. How
// often the part repeats follows from the number of arguments: see template.
//
// # Waits for locks
//
// A server goes on waiting for a lock after its client has left, for 50 s by default, and keeps the
// session. dblock bounds a wait to one second, which is the shortest bound that MySQL takes.
// MariaDB takes the bound with each statement: see Briefly. MySQL takes it for the session:
// Pool.In sets it before a transaction and restores the host's value afterwards. On MySQL dblock
// bounds waits for tables, too.
//
// In a file that needs the Go driver as well, the driver's import name is mysqldriver.
package mysql
