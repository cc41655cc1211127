// Package locksim simulates processes that lock, a network and a database server, on the clock of
// testing/synctest. A seed decides everything: what the processes do, how long each message takes,
// which messages are lost, which process stands still and when, and which process or server is
// restarted. A server that restarts forgets the releases of its last moments.
//
// The processes run the real core. Only what is below its Engine interfaces is simulated:
//
//	program ── dblock.Locker ── lease, member, batch ── driver ── network ── memlease.Server
//	program ── dblock.Locker ── session ── sessionDriver, conn ── network ── sessions
//
// A checker outside the core reads the history and the server's rows: which holds overlapped, which
// fences went back, which grants are left when all programs have ended. Each protection has a
// mutation that removes it, and the checker must find every mutation.
//
// The package has tests only.
package locksim
