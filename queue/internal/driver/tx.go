package driver

import (
	"context"

	"github.com/dblock-go/dblock/internal/member"
)

// Beginner is a driver whose transactions are of the type Tx.
type Beginner[Tx any] interface {
	// Begin begins a transaction of READ COMMITTED, read and write, on a connection of the host's
	// own. What tx is given to can neither commit it nor go on with it after HandlerTx.End, or
	// HandlerTx.End says so. If first is not nil, the beginning of that job of the member is
	// recorded as by BeginJobs, once there is a connection; without it there is no transaction.
	Begin(ctx context.Context, m member.ID, first *Position) (tx Tx, w HandlerTx, got Beginning, err error)
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

// HandlerTx is a transaction in which a handler does its job, and in which the job ends.
type HandlerTx interface {
	// End is Sync in it, of nothing but one job that is completed. It is not ours if its claim is
	// not the member's any more. It waits for the rows of unique keys and groups briefly only, and
	// IsLocked of its error. An error that is dblock.ErrTxEnded says that the handler had ended it.
	End(ctx context.Context, x *SyncBatch) (ours bool, err error)

	// Commit leaves open whether it took place if there is an error, unless that is
	// sqlerr.Retryable.
	Commit(ctx context.Context) error

	// Rollback gives the connection back, whatever has become of the transaction. It is called
	// once, in the end, after Commit too.
	Rollback(ctx context.Context)
}

// Queue has methods of package queue for its drivers. Package queue sets it at initialization;
// package link, which can name the types of both, gives it a type.
var Queue any

// Begin is that of a Beginner, for a handler that knows the type of the transaction.
type Begin func(ctx context.Context, m member.ID, first *Position) (tx any, w HandlerTx, got Beginning, err error)
