// Package lease is the core of the lease locks of all databases: wait queues, holds, renewal and
// loss. The SQL is the driver's.
//
// A lease is a row with a unique key. It belongs to a handle, which no other acquisition has. It
// lasts while its process's member is alive (package member), or for a time of its own. Each
// process has one wait queue for each key: its first waiter asks the database, and the others queue
// behind it.
package lease
