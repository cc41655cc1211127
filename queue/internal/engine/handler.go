package engine

import "context"

// Beginner is an engine whose drivers' transactions are of the type Tx.
type Beginner[Tx any] interface {
	// Begin begins a transaction of READ COMMITTED, read and write, on a connection of the host's own. What tx is given to can
	// neither commit it nor go on with it after Work.End, or Work.End says so.
	Begin(ctx context.Context) (tx Tx, w Work, err error)
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
