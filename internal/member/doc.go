// Package member keeps a process's one row alive: the member. The server's clock decides if its
// heartbeats are in time. All that the process holds refers to the member. So ten thousand locks
// cost one small statement for each interval, a graceful end frees them in one, and a crash is one
// decision.
//
// The rules, each of which a test holds:
//
//   - This process trusts its member no longer than the server does: from before the last confirmed
//     heartbeat was sent, for the TTL less a margin, by the monotonic clock or the wall clock,
//     whichever is first.
//   - An incarnation that has ended stays ended, whatever the row says. The process registers again
//     under a new id.
//   - A heartbeat has a bound of its own, and one that hangs delays no end.
//   - An operation without a clear answer is asked about again after each heartbeat, until the
//     server has said how it ended (OnHeartbeat).
package member
