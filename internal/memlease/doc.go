// Package memlease is an engine of lease locks without a database: for tests, of what engines have in
// common and of what uses locks.
//
// A Server stands for the database. Its rows change under one mutex, by the same conditions as in
// queries/postgres, and its clock may be a test's. An Driver is one process's access to it, and can be
// disturbed call by call. Differences from a database: no row is ever locked by somebody's
// transaction, and who waits is woken also by the end of a lease's time: with a clock that a test moves,
// a poll could come before the moment, and no other would follow.
package memlease
