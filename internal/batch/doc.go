// Package batch is the one idea behind the toolkit's speed: while one statement is in flight, the
// calls that arrive wait together and go out in the next.
//
// A hot row takes as many durable commits a second as the disk takes flushes, so the lever is how
// much work each statement carries. There is no timer and no linger: a lone caller runs its
// statement on its own goroutine and pays nothing, a crowd shares.
//
// The rules, each of which a test holds:
//
//   - Bounded at admission only: past MaxQueue a call is refused with dblock.ErrOverloaded, unless
//     it ends a hold, which is never refused.
//   - A caller whose context ends while its call is queued was certainly not executed. Once sent,
//     the outcome is what the database says, or dblock.ErrOutcomeUnknown. The answer then goes to Late.
//   - An answer counts when Run has returned without an error, never before.
//   - One bad request never fails its neighbours: the batch is divided: see sqlerr.Trial.
//   - PerKey statements are in flight for a key: one, as a second would only wait for the first one's
//     row lock, unless a statement does some of its work before it takes that. Keys share a
//     statement; what it had to skip is asked again alone. So that little is skipped, a second statement
//     of a key carries no other key, and there is none while the first carries others.
//   - Calls of one key are sent in the order in which they arrived, unless their statement was divided.
package batch
