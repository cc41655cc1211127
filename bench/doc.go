// Package bench measures dblock as pgbench measures Postgres: clients in a closed or an open loop,
// for a given time, against a real server. A report has the failures by kind, the latencies in an
// HDR histogram, and the cost of an operation in statements, log bytes and allocations.
//
// What is measured is a Scenario. Several of them run interleaved, round by round, so that whatever
// slows the machine down for a while slows all of them, and the ratio of two scenarios is taken
// within a round. Absolute numbers are the machine's.
//
//	Run         one call: chooses scenarios, and runs a suite on each kind of server
//	suite       one server: opens its scenarios, each on a database of its own, runs the rounds, reports
//	probe       asks the server for its settings and counters
//	Workload    an open scenario: prepares each round, and checks its result
//	runner      one round: its clients call an Op, in a closed loop or when a schedule says so
//	recorder    latencies and failures of a round
//
// A scenario is a value with a name and a way to open it; `dblock bench --list` names all of them.
// Sales, locks and queues, ours and those of peers, share their rounds: a new one is a
// SaleScenario, a LockScenario or a JobsScenario with the few lines that are its own. Hand-written
// SQL runs on a Database, which is either engine.
package bench
