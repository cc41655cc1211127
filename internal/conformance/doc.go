// Package conformance tests what dblock promises, on a real server. Each contract has a suite in a
// package of its own, which every driver runs. Only tests import these packages.
//
//   - lock: leases, electors, quorums, row locks, recipes
//   - session: the locks that a server keeps for a connection
//   - queue: jobs and workers
//   - inventory: reservations and stock
//   - optimistic: updates by version, tables, transactions
//   - answers: what dblock makes of the errors and rows that a server returns
//   - suite: what several suites need
//
// The package doc of a suite lists its promises.
package conformance
