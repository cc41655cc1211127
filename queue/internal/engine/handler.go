package engine

import (
	"context"

	"github.com/dblock-go/dblock/internal/member"
)

// Beginner is an engine whose drivers' transactions are of the type Tx.
type Beginner[Tx any] interface {
	// Begin begins a transaction of READ COMMITTED, read and write, on a connection of the host's own. What tx is given to can
	// neither commit it nor go on with it after Work.End, or Work.End says so. If first is not nil, the beginning of that
	// job of the member is recorded as by BeginJobs, once there is a connection; without it there is no transaction.
	Begin(ctx context.Context, m member.ID, first *Place) (tx Tx, w Work, got Beginning, err error)
}

// Beginning is what became of the record that a job begins.
type Beginning int

const (
	BeginRefused  Beginning = iota // the claim is not the member's
	BeginLocked                    // another transaction has locked a row: it is not recorded
	BeginRecorded                  // or was not asked for
)

// BeginningOf is what BeginJobs says of one job.
func BeginningOf(begun, locked []ID) Beginning {
	switch {
	case len(begun) > 0:
		return BeginRecorded
	case len(locked) > 0:
		return BeginLocked
	}
	return BeginRefused
}

// Work is a transaction in which a handler does its job, and in which the job ends.
type Work interface {
	// End is Exchange in it, of nothing but one job that is finished; ours is false where its claim is not the member's any more.
	// It waits for the rows of unique keys and groups briefly only, and IsLocked of its error.
	// An error that is dblock.ErrTxEnded says that it had ended before, by the handler's doing.
	End(ctx context.Context, x *Exchange) (ours bool, err error)

	// Commit leaves open whether it took place where there is an error, unless that is
	// sqlerr.Retryable.
	Commit(ctx context.Context) error

	// Rollback gives the connection back, whatever has become of the transaction. It is called once, in the end, after Commit too.
	Rollback(ctx context.Context)
}
