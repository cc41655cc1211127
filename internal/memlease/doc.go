// Package memlease is a driver of lease locks without a database. It is for tests of the core and
// of code that uses locks.
//
// A Server is the database. Its rows change under one mutex, by the same conditions as in
// queries/postgres, and its clock may be a test's. A Driver is one process's access to it. It can
// be disturbed call by call. Differences from a database: no row is ever locked by a transaction,
// and waiters are woken by the end of a lease's time, too. With a clock that a test moves, a poll
// could come before that moment, and no other would follow.
package memlease
