// Package locksim simulates processes that lock, a network and a database server, on the clock of
// testing/synctest. A seed decides everything: what the processes do, how long each message takes,
// which messages are lost, who stands still and when, and which process or server is restarted. The
// same seed gives the same history.
//
// The processes run the real core: internal/lease with internal/member and internal/merge. Only
// what is below the core's Engine interface is simulated:
//
//	program ── dblock.Locker ── lease, member, merge ── engine ── network ── memlease.Server
//
// A judge outside the core reads the history and the server's rows: which holds overlapped, which
// fences went back, which grants are left when all programs have ended. Each protection has a
// mutation that removes it, and the judge must find every mutation.
//
// The package has tests only.
package locksim
