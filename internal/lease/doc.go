// Package lease is the core of the lease locks of all databases: wait queues, holds, renewal and
// loss. The SQL is the driver's.
//
// A lease is a row with a unique key. It belongs to a handle, which no other acquisition has. It
// lasts while its process's member is alive (package member), or for a time of its own. Each
// process has one wait queue for each key: its first waiter asks the database, and the others queue
// behind it.
//
// The parts of a Locker are layers: see Locker. A request goes down through them. The wait queue's
// states are at waitQueues. The states of a hold, which is a granted lease in this process:
//
//	        granted, or handed over by the hold before
//	                          │
//	                          ▼            Release
//	                        held ──────────────────────────────▶ released
//	                          │                                     ▲
//	its member has ended,     │                                     │ Release
//	its own end has come,     ▼                                     │
//	the row is another's    lost ────────────────────────────────────┘
//	                          │
//	                          │ its own end has come: no Release is due
//	                          ▼
//	                       forgotten
//
// A statement that got no reply is an unresolved operation. The reconciler repeats its release
// until the server has answered, or until the member has ended.
package lease
