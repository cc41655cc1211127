// Package pgdb is the Go code that sqlc generates from queries/postgres. Packages of dblock call it.
//
// It carries no compatibility promise: any release may change its names, its signatures and the
// statements behind them. Use pglock, queue, inventory and optimistic, which keep theirs.
package pgdb
