// Package session manages locks that a database server itself keeps for a connection. It knows
// which lock this process holds and which of its callers waits for which lock. If a connection
// ends, its locks are lost. Many locks share a connection, and the requests of many callers share a
// statement. The statements are those of a Driver.
//
// The parts of a Locker are layers. A layer uses those below it:
//
//	Locker                     Acquire, TryAcquire and Close
//	serverQueue                calls that wait in the server's own queue
//	keyNotes, watcher          work in the background
//	callers                    how a call asks, waits and asks again
//	slots                      which lock this process holds, and which caller is next
//	sessions                   the connections, and the queue of requests of each
//	base                       options, the mutex and what is under way
//
// A slot is one lock of the server that this process holds or wants:
//
//	          Take is done             its holders release it
//	free ------------------> held ----------------------------+
//	  ^                       ^   |                            |
//	  |                       |   | no other session waits,    | no waiter in this process, or
//	  |                       |   | or it is this process's    | other sessions wait and this
//	  |                       |   | turn: the next waiter      | process has had its turn
//	  |                       +---+                            |
//	  +--------------------- Free is done ---------------------+
//
// A slot has one request under way at a time. While a lock is held by another session, the first
// waiter announces that it waits (Show), and asks again when the lock is released or after a poll
// interval.
package session
