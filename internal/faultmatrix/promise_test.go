package faultmatrix

// Promise is one of the promises that each run checks.
type Promise int

// The promises, in the order of the columns of docs/faults.md.
const (
	Exclusion Promise = iota
	FenceGrows
	GuardedWrite
	NothingLost
	NothingTwice
	NoLeak
	NoHang
	Truthful
	promises
)

// promiseText says what a promise is, and what its control does without.
var promiseText = [promises]struct{ name, promise, control string }{
	Exclusion: {"exclusion", "Two holders never trust one key at the same time.",
		"The caller enters whatever the acquisition returned."},
	FenceGrows: {"fence grows", "The token of a later grant is larger.",
		"Each process numbers its own grants."},
	GuardedWrite: {"guarded write", "Grants and guarded writes are linearizable (porcupine): no older holder writes, and no update is overwritten unread.",
		"The same read and write without the guard."},
	NothingLost: {"nothing lost", "A write, an order or a job whose call returned nil is in the database. A job takes effect, or is kept as dead.",
		"The handler returns nil whether its work is done or not."},
	NothingTwice: {"nothing twice", "An order is recorded once, however often it is sent. A job of HandleTx takes effect once.",
		"A repeated order has a new key. The handler writes outside the job's transaction."},
	NoLeak: {"no leak", "After the fault each key can be acquired, no claim is left, and no connection stays open.",
		"The caller never releases."},
	NoHang: {"no hang", "A call returns within 3 s after its deadline. A time for which its process stood still does not count.",
		"The caller has no deadline, and waits for a key that stays held."},
	Truthful: {"truthful error", "After an error that says so nothing is written. Each error has a documented class.",
		"The caller takes an unknown outcome for a refusal."},
}

func (p Promise) String() string { return promiseText[p].name }
