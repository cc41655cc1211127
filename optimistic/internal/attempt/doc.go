// Package attempt repeats optimistic updates, for package optimistic and its drivers: how often they
// are tried, the pauses between attempts, and the queue of callers of one process for one row.
package attempt
