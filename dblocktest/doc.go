// Package dblocktest has locks without a database, for the tests of services that use dblock. They
// are those of pglock and mysqllock in memory, and pass the same tests. They add what a test needs:
// a clock that it moves, locks that are lost at the right moment, calls that fail.
//
//	locks := dblocktest.New(t)                             // for a test that wants no more than locks
//
//	clock := dblocktest.NewClock(time.Now())               // for one in which time passes
//	server := dblocktest.NewServer(clock)
//	a, err := server.NewLeaseLocker(dblocktest.LeaseOptions{})       // each LeaseLocker is a process of its own
//	b, err := server.NewLeaseLocker(dblocktest.LeaseOptions{})
//
// Lockers of one Server exclude each other, as processes with one database do. A service is given a
// Locker where it takes a dblock.Locker; where it guards its writes, the fake of its storage calls
// Server.Check in the guard's place.
//
// These locks differ from those of a database in the following:
//   - There is no transaction: nothing keeps a lock from being taken over between Check and the
//     write that follows. Only a guard in a real database can promise that.
//   - No row is locked by others: ErrBusy, ErrUnavailable, and ErrOutcomeUnknown are returned only
//     where Fail says so.
//   - Time is that of one clock: it shows no drift between a server and its clients.
//   - A Server forgets everything when its process ends.
package dblocktest
