package dblock

// Strength is how strongly a row is locked.
type Strength uint8

const (
	// StrengthDefault excludes all other writers and lockers: StrengthNoKeyUpdate on Postgres,
	// StrengthUpdate on MySQL and MariaDB.
	StrengthDefault Strength = iota

	// StrengthUpdate is for rows that will be deleted, or whose key changes. On Postgres it also
	// excludes inserts of rows that refer to this one by a foreign key.
	StrengthUpdate

	// StrengthNoKeyUpdate is for rows whose other columns change. Only Postgres has it.
	StrengthNoKeyUpdate

	// StrengthShare keeps the row unchanged. It coexists with other shared strengths.
	StrengthShare

	// StrengthKeyShare keeps the row from deletion and its key unchanged. Only Postgres has it.
	StrengthKeyShare
)

// RowLock says how LockRow, LockRows and Claim lock rows of your own tables. The zero value is good
// for use.
type RowLock struct {
	// Strength of the lock. Default: the weakest that excludes all other writers.
	Strength Strength

	// Wait says how long to wait for each row that another transaction has locked. Default: while
	// the context lives and the server's own bound lasts.
	Wait TxWait

	// Scan allows statements without an index, for which MySQL and MariaDB lock every row that they
	// read, in no order. Postgres locks the rows that it returns, and needs no index. Default: such
	// a statement is refused.
	Scan bool
}

// LockedRows lists the keys of a call by what happened to their rows. A key in neither list has no
// row.
//
// Each key is listed as the caller gave it, however its row spells it: to the server "Ann" and
// "ann", or 1 and 1.00, may be the same. Several keys of one row are all listed. The order is the
// server's order of keys.
type LockedRows[K any] struct {
	Locked  []K
	Skipped []K // another transaction has locked their rows; only with SkipLocked
}
