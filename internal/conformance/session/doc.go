// Package session holds the suite of the locks that a server keeps for a connection.
//
// # Promises
//
//   - SessionsExclude: Two processes never hold a key at the same time.
//   - RefusesWhatItLacks: Options that only leases have are refused.
//   - RefusesBadOptions: Bad options are refused.
//   - RefusesBadKeys: A raw key that the server could not have is refused.
//   - RawKeysAreTheServers: A raw key excludes exactly what the server excludes for other programs.
//   - RawWaitsLeaveOthersAlone: A waiter for a raw key takes no other key, and polls seldom.
//   - TellsTheObserver: The Observer hears of each acquisition, wait, release and loss.
//   - CloseGivesBack: Close frees what the process holds.
//   - CloseInLine: Close ends the waits of the process.
//   - ALeaverIsNoTrouble: When the first waiter gives up, the next one gets the lock.
//   - TriesAfterARelease: A released key is granted to a try at once.
//   - ManyLocksFewConns: One process holds 5,000 locks on a few connections.
//   - MoreThanItMay: A process at the server's limit is refused, and loses nothing.
//   - IsLinearizable: Grants and releases have an order in which each is what a lock would do.
//   - ServedInLine: The server's queue serves waiters of all processes in order.
//   - LeavesTheLine: Waiters that give up at the server leave nothing, and the next are served.
//   - TheLineEndsWithConns: A lock from the server's queue ends with its own connection alone.
//   - DoubtEndsNoOtherLock: Interrupted statements end no other lock of the session and leave none.
//   - TheServerQueueWaitsOn: A waiter at the server outlives its connection and its statement.
//   - ALostLockIsNotReleased: A holder without its connection releases nothing of the next one.
//   - ALostLockInLineIsNotReleased: The same for a lock from the server's queue.
//   - NoHandOverWhenDead: A process that lost its connection hands nothing over to its waiters.
//   - InterruptedHandOvers: Callers go on, and no lock is lost, while hand-overs are interrupted.
//   - WaitersOutliveASession: A waiter goes on with another connection after its own was ended.
//   - CostsFewRoundTrips: Acquisitions, refusals, releases and shared holds cost one statement each.
//   - ADeadOneIsFreedAtOnce: The locks of a process that died are free at once.
//   - ReadersShare: Readers of two processes hold a key together, and a writer waits for them.
//   - WaitsForReaders: A writer that waits keeps new readers out; when it gives up they may come.
//   - AWriterIsLetIn: A writer gets its turn although readers come and go without a gap.
//   - ReadersDontUpgrade: A reader that asks for the exclusive lock below its own is refused.
//   - ReadersDontWait: Readers of one process all hold a key before one of them ends.
//   - ReadersTryBesideAWriter: Tries of readers are refused at once while a writer waits.
//   - ReadersHearOfAWriter: Readers that wait for a writer learn of its release.
//   - LostReadersAreNotReleased: Readers of one process that lost their connection learn of it.
//   - AWriterInLineIsLetIn: Readers of one process keep no writer out that waits at the server.
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
//   - CancelsRaceGrants: Callers that give up in the moment of the grant hold nothing.
//   - ControlCancelsLeak: The usual code by hand leaks the lock.
//   - AReleaseBesideTheDead: A release under an ended context hands over to the next waiter.
//   - AcquireCutAnywhere: The answer of an acquisition is true wherever its connection breaks.
//   - ReleaseCutAnywhere: A release takes place, or the connection ends.
//   - WaitCutAnywhere: A waiter gets the lock wherever its connection breaks.
//   - OpenCutAnywhere: A Locker that cannot reach the server says so, and leaves nothing.
//   - AFrozenHolderIsFreed: The lock of a stopped process is freed, and never counted on again.
//   - ABlackHoleIsFreed: A lock behind a lost network is freed after its holder stopped counting.
//   - ExcludesThroughKills: Two processes count on a key only until the loss of one is found.
//   - ASilentServerKeepsNoCaller: A caller's deadline holds while the network is silent.
//   - AKilledSessionIsLost: A killed connection's locks are lost soon, and new ones are granted.
//   - ANetworkFallsSilent: On Linux, the server frees a lock within IdleTimeout of a cut network.
package session
