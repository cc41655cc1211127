// Package queue runs jobs that are kept in the service's own database: enqueued in the transaction that they belong to, done at least
// once, by whichever process has time.
//
// Make a Queue with pgqueue.New or mysqlqueue.New, register a handler for each kind of job (Handle), enqueue tasks (Enqueue, or
// EnqueueTx of the engine room in a transaction of one's own), and have processes Work.
//
// What it promises:
//
//   - A job that was enqueued is done, or kept with the dead and the reason: none is lost, whatever becomes of workers, connections
//     and the server, as far as the server itself loses no commits.
//   - It is done at least once. More than once only where its process died, was frozen for longer than the TTL, or was cut off from
//     the database, before the end of the job was recorded.
//   - What a handler writes in the transaction that HandleTx of the engine room gives it is there exactly once: the job ends with it.
//   - A fence: jobs are claimed, and the claim committed, before they begin; every end of a job proves that the claim is still this
//     process's. Of a process that stood still for too long the jobs go to others, and what it then says of them is refused and
//     counted (Observer.Lost).
//   - A process is alive while its heartbeat is, however long its jobs take. The jobs of one that died are ready again within its TTL
//     and Rescue.
//   - Of jobs with the same unique key (Task.Unique) there is one at a time, from when it is enqueued until it has ended. Of jobs of one
//     group (Task.Group) so many are claimed at once as Task.GroupLimit says, and with 1 in the order in which they were enqueued.
//   - Other jobs of one priority begin about in the order in which they became ready. That is no promise: neighbours overtake each other.
package queue
