// Package queue runs jobs that are kept in the service's own database: enqueued in the transaction
// that they belong to, and run at least once by any process of the service.
//
//	jobs, err := pgqueue.New(ctx, pool, queue.Options{})        // Postgres, with pgx
//	jobs, err := mysqlqueue.New(ctx, db, queue.Options{})       // MySQL and MariaDB
//
//	err = queue.Handle(jobs, "welcome", func(ctx context.Context, job queue.Job[Welcome]) error {
//		return send(ctx, job.Args.Address)                  // an error: again after a while
//	})
//	id, err := jobs.Enqueue(ctx, queue.Task{Kind: "welcome", Args: Welcome{Address: "ann@example.com"}})
//	err = jobs.Work(ctx, queue.WorkerOptions{})                 // until ctx ends
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
//
// # States of a job
//
//	enqueued --+------------------> ready --claimed--> claimed --+--> completed
//	           |                      ^                          |
//	           +-> scheduled ---------+   its time has come      +--> scheduled   Snooze
//	           |   (or retrying)      |                          +--> retrying    an error
//	           |      | of a group    |                          +--> ready       handed back
//	           |      v               |                          +--> cancelled   Cancel
//	           +-> blocked -----------+   its group admits it    +--> dead        Discard, or the
//	                                                       last failed attempt
//
// A job that waits can be cancelled and discarded, too. A dead one is ready again with Retry. The
// rescue ends claimed jobs of processes that are gone: they are retrying, dead, cancelled, or ready
// if they had not begun.
//
// # Life of a worker
//
//	Work --> working --ctx ends, or Close--> stopping --> the handlers --> all ends --> returned
//	           ^  |                             ^         have returned    are recorded
//	   resumed |  v paused                      |
//	          resting --------------------------+
//
// Working, its syncer claims jobs and puts them into the buffer, from which handlers take them. A
// handler makes an attempt at a job. Its end goes to the outbox of the syncer. The next sync
// records it, and claims more, in one round trip. Resting and stopping, jobs that have not begun
// are handed back.
//
// # Parts
//
// The public methods of Queue check their arguments, and call a part. Each part has its own state:
//
//	enqueuer     merges calls of Enqueue into statements
//	registry     has the handlers
//	notices      notifies the workers of this process, and other processes, of jobs
//	promoter     makes jobs ready whose time has come
//	reconciler   releases claims whose replies were lost
//	election     elects one worker for the maintenance
//	statements   bounds the statements of the driver, which all of these use
//
//	worker       is one call of Work, with these parts:
//	  buffer         jobs that were claimed and have not begun
//	  syncer         ends and claims jobs, with an outbox of ends and a claimer
//	  payloadReader  reads large payloads
//	  canceller      is notified of jobs that are to be cancelled, and of a pause
//	  maintainer     does the maintenance while it is elected
package queue
