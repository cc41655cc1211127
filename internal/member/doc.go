// Package member keeps a process's one row alive: the member, whose heartbeat the server's clock
// judges. All that the process holds refers to it, so that ten thousand locks cost one small
// statement a tick, a graceful end frees them in one, and a crash is one decision.
//
// The rules, each of which a test holds:
//
//   - What this process believes ends no later than what the server believes: trust lasts from before
//     the last confirmed heartbeat was sent, for the TTL less a margin, by the monotonic clock or the
//     wall clock, whichever is first.
//   - A life that has ended stays ended, whatever the row says. The process joins again under a new id.
//   - A heartbeat has a bound of its own, and one that hangs delays no end.
//   - What has no clear answer is asked again, heartbeat after heartbeat, until the server has said
//     how it ended (Doubt).
package member
