package dblock

// Strength is how strongly a row is locked.
type Strength uint8

const (
	// StrengthDefault keeps all other writers and lockers out: StrengthNoKeyUpdate on Postgres, StrengthUpdate on MySQL and MariaDB.
	StrengthDefault Strength = iota

	// StrengthUpdate is for rows that will be deleted, or whose key changes. On Postgres it also keeps out those who insert rows
	// that refer to this one by a foreign key.
	StrengthUpdate

	// StrengthNoKeyUpdate is for rows of which anything else changes. Only Postgres has it.
	StrengthNoKeyUpdate

	// StrengthShare keeps the row as it is, together with others who do the same.
	StrengthShare

	// StrengthKeyShare keeps the row's key as it is, and the row from being deleted. Only Postgres has it.
	StrengthKeyShare
)

// RowLock says how LockRow, LockRows and Claim lock rows of your own tables. The zero value is good for
// use.
type RowLock struct {
	// Strength of the lock. Default: the weakest that keeps all other writers out.
	Strength Strength

	// Wait says how long to wait for each row that another transaction has locked. Default: while the
	// context lives and the server's own bound lasts.
	Wait TxWait

	// Scan allows what MySQL and MariaDB do for want of an index: to lock every row that is read on the way, and in no
	// order. Postgres locks the rows that it returns, and needs no index. Default: such a statement is refused.
	Scan bool
}

// LockedRows lists the keys that were asked for by what became of their rows. A key that is in neither list has no row.
//
// Each key is listed as it was given, however its row spells it: the server compares, and to it "Ann" and "ann", or 1 and
// 1.00, may be the same. Several keys of one row are all listed. The order is the server's order of keys.
type LockedRows[K any] struct {
	Locked  []K
	Skipped []K // another transaction has locked their rows; only with SkipLocked
}
