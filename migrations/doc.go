// Package migrations holds dblock's tables as goose files, and applies them.
//
// Up is safe to call from every process of a service at start: one of them migrates, the others
// wait. What is applied is recorded in dblock's own table, dblock_schema_version; the version table
// of your own goose is never touched, and neither is the pool that is passed in (it stays open).
//
// Up and Down continue what a process that was killed has left. What each version has, to the last
// index, is known: Up compares, creates what is missing, and names what differs.
//
// Two other ways lead to the same tables: `dblock migrate up` from the command line, and SQL, whose
// text goes into migrations of your own. Mixed use is fine, because all of them record the same.
//
// Migrating needs a direct connection to the server. Postgres behind a pooler such as PgBouncer is
// refused with ErrPooler: there the lock that keeps two migrations apart can't be relied on.
//
// What the user that migrates may do, and what the service's user needs, is in docs/grants.md.
package migrations
