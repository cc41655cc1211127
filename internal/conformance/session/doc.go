// Package session holds the suite of the locks that a server keeps for a connection.
//
// # Promises
//
//   - SessionsExclude: Two processes never hold a key at the same time.
//   - RefusesWhatItLacks: Options that only leases have are refused.
//   - RefusesBadOptions: Bad options are refused.
//   - RefusesBadKeys: A raw key that the server could not have is refused.
//   - RawKeysAreTheServers: A raw key excludes exactly what the server excludes for other programs.
//   - TellsTheObserver: The Observer is called for each acquisition, wait, release and loss.
//   - CloseGivesBack: Close frees what the process holds.
//   - CloseInLine: Close ends the waits of the process.
//   - ALeaverIsNoTrouble: When the first waiter gives up, the next one gets the lock.
//   - ManyLocksFewConns: One process holds 5,000 locks on a few connections.
//   - MoreThanItMay: A process at the server's limit is refused, and loses nothing.
//   - ServedInLine: The server's queue serves waiters of all processes in order.
//   - LeavesTheLine: Waiters that give up at the server leave nothing, and the next are served.
//   - TheLineEndsWithConns: A lock from the server's queue ends with its own connection alone.
//   - TheServerQueueWaitsOn: A waiter at the server outlives its connection and its statement.
//   - ALostLockIsNotReleased: A holder without its connection releases nothing of the next one.
//   - InterruptedHandOvers: Callers go on, and no lock is lost or left, amid interrupts.
//   - CostsFewRoundTrips: An acquisition, refusal, release or shared hold costs one statement.
//   - ADeadOneIsFreedAtOnce: The locks of a process that died are free at once.
//   - ReadersShare: Readers of two processes hold a key together, and a writer waits for them.
//   - WaitsForReaders: A writer that waits keeps new readers out; when it gives up they may come.
//   - AWriterIsLetIn: A writer gets its turn although readers come and go without a gap.
//   - ReadersDontUpgrade: A reader that asks for the exclusive lock below its own is refused.
//   - ReadersDontWait: Readers of one process all hold a key before one of them ends.
//
// # On Postgres, in TestSessionWaits of package pglock
//
//   - RawWaitsLeaveOthersAlone: A waiter for a raw key takes no other key, and polls seldom.
//   - ReadersHearOfAWriter: Readers that wait for a writer learn of its release.
//   - HoldsNoSnapshot: A waiting call keeps no snapshot, so VACUUM goes on.
//
// # As leases do, with waits in the process and at the server
//
//   - ReadersShare: Readers of several processes hold a key at once, and exclude writers.
//   - WaitsForReaders: A writer waits for readers, and keeps others from coming in.
//   - AWriterIsLetIn: A writer gets the key although readers come and go.
//   - ReadersDontUpgrade: A reader that asks for the exclusive lock below its own is refused.
//   - ReadersDontWait: Readers of one process all hold a key before one of them ends.
//
// # Under faults
//
//   - ABlackHoleIsFreed: A lock behind a lost network is freed after its holder stopped counting.
//   - ASilentServerKeepsNoCaller: A caller's deadline holds while the network is silent.
//   - AKilledSessionIsLost: A killed connection's locks are lost soon, and new ones are granted.
//   - ANetworkFallsSilent: On Linux, the server frees a lock within IdleTimeout of a cut network.
//
// # Checked elsewhere
//
// By TestLocks and TestLocksFaults of internal/programs, which draw session locks with and without
// the server's queue: grants and releases have an order in which each is what a lock would do, also
// when connections are ended and statements interrupted. A Release that returns nil means that the
// lock was held until then, shared or alone. A process that lost its connection hands nothing over.
// A statement whose answer was lost leaves nothing: TestSeeds of internal/locksim checks both. A
// caller that gives up, also at the moment of the grant, leaves nothing. A release under an ended
// context takes place. Errors are those that are documented, also when a Locker is opened.
//
// By internal/faultmatrix: the answers of acquisitions and releases are true if a connection breaks
// or stalls at any call, and a process that was frozen past its time counts on no lock.
//
// By internal/session: a waiter goes on if its connection ends (TestWaitsOnAfterALoss), and a try
// gets what was released (TestTriesBehindATidyUp).
package session
