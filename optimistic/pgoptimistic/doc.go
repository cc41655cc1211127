// Package pgoptimistic is optimistic on Postgres, with pgx.
package pgoptimistic
