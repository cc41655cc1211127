// Package mysqldb is the Go code that sqlc generates from queries/mysql. Packages of dblock call it.
//
// It carries no compatibility promise: any release may change its names, its signatures and the
// statements behind them. Use mysqllock, queue, inventory and optimistic, which keep theirs.
package mysqldb
