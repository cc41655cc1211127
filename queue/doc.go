// Package queue runs jobs that are kept in the service's own database: enqueued in the transaction
// that they belong to, and run at least once by any process of the service.
//
// # Contents
//
//   - Queue is made by pgqueue.New or mysqlqueue.New.
//   - Handle registers the handler of a kind of jobs. HandleTx of a driver registers one that works
//     in a transaction, with which its job ends. A handler ends its job by what it returns: nil,
//     Snooze, Discard, Cancel or another error.
//   - Queue.Enqueue and EnqueueMany enqueue a Task. EnqueueTx of a driver does so in a transaction
//     of the caller's.
//   - Queue.Work runs jobs, as WorkerOptions say.
//   - Queue.List, Show, Cancel, Discard, Retry, RetryAll, Purge, Pause and Resume are for
//     operators. `dblock queue` has them as commands.
//   - Observer reports what becomes of jobs. Queue.Stats counts them.
//
// # What is guaranteed
//
//   - No job is lost, whatever becomes of workers, connections and the server, as far as the server
//     itself loses no commits. A job that was enqueued is completed, or it is kept with the dead
//     and the reason.
//   - A job runs at least once. It runs more than once only if its process died, was frozen for
//     longer than the TTL, or was cut off from the database before the end of the job was recorded.
//   - What a handler of HandleTx writes in its transaction is there exactly once: the job ends with
//     it.
//   - A fence: a claim is committed before its jobs begin, and every end of a job proves that the
//     claim is still this process's. The jobs of a process that stood still for too long go to
//     others. What that process then reports of them is refused and counted (Observer.Lost).
//   - A process is alive while it sends heartbeats, however long its jobs take. The jobs of a dead
//     process are ready again within its TTL and WorkerOptions.Rescue.
//   - One job at a time has a unique key (Task.Unique), from when it is enqueued until it has
//     ended. At most Task.GroupLimit jobs of a group (Task.Group) are claimed at once. With 1 they
//     are claimed in the order in which they were enqueued.
//
// Other jobs of one priority begin about in the order in which they became ready. That is no
// promise: neighbours overtake each other.
package queue
