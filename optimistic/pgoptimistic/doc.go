// Package pgoptimistic is optimistic on Postgres, with pgx: Update and Do, which know the server's errors and can take a lock
// (EscalateAfter, LockRow), and NewTable for those without queries. What is guaranteed is said in package optimistic.
package pgoptimistic
