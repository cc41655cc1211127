// Package lease is what the lease locks of all databases have in common: who waits, who holds, how a
// lock is kept and lost. The SQL is the driver's.
//
// A lease is a row with a unique key. It belongs to a handle, which no other acquisition has, and is kept
// alive by its process's member (package member), or lasts for a time of its own. In front of the
// database each process keeps one line a key: one waiter asks, all others stand behind it.
package lease
