// Package batch is what makes dblock fast: while one statement is in flight, the calls that arrive
// wait together, and the next statement carries them all.
//
// A hot row takes as many durable commits a second as the disk takes flushes. So throughput depends
// on how much work each statement carries. There is no timer: a single caller runs its statement at
// once, on its own goroutine. Concurrent callers share statements.
//
// The rules, each of which a test holds:
//
//   - Only admission is bounded: past MaxQueue a call is refused with dblock.ErrOverloaded, unless
//     it ends a hold, which is never refused.
//   - A call whose context ends while it is queued was certainly not executed. Once it was sent,
//     the outcome is what the database says, or dblock.ErrOutcomeUnknown. The answer then goes to
//     Late.
//   - An answer counts when Run has returned without an error, never before.
//   - One bad request never fails its neighbours: the batch is divided: see sqlerr.Trial.
//   - PerKey statements are in flight for a key. The default is one: a second would only wait for
//     the row lock of the first, unless a statement does some of its work before it takes that
//     lock.
//   - Keys share a statement. A request that the statement had to skip is sent again in one without
//     other keys. To skip little, a second statement of a key carries no other key, and none is
//     sent while the first carries others.
//   - A request that contends for several keys is sent when no statement in flight carries one of
//     them, and none that does begins before it.
//   - Calls of one key are sent in the order of their arrival, unless their statement was divided.
//
// The states of a call:
//
//	          a statement takes it          Run answers
//	queued ─────────────────────────▶ sent ─────────────▶ answered
//	  │ ▲                               │
//	  │ └───────────────────────────────┤ Run answers Alone, or its batch is divided
//	  │ ctx or its time ends            │ ctx ends
//	  ▼                                 ▼
//	withdrawn                         abandoned
//	ErrNotSent or ErrNotInTime:       ErrAbandoned: the outcome is unknown, and goes to Late
//	nothing was done
//
// A lane is the queue of one key. It is ready while it has queued calls and a statement may carry
// it. It rests if its calls were answered Alone again: a timer makes it ready. It is blocked while
// a statement that carries it waits aside (Yield).
package batch
