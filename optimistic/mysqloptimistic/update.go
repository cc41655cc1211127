package mysqloptimistic

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

// Update reads a row, changes it and writes it, and does all of that again if another caller has
// written the row meanwhile; see optimistic.Update. load and save are given what their statements
// are to run on. As a rule that is db itself, and they are two statements without a transaction;
// after EscalateAfter it is a transaction at READ COMMITTED, which Update begins and commits.
//
// If db is a transaction of the caller's there is one attempt, whatever the options say, and no
// lock: at REPEATABLE READ and above a second one would read the same again, and what has been
// written before in that transaction is not Update's to repeat. The error says so; roll back, and
// repeat the whole transaction, as Do does. That is a *sql.Tx, and whatever is not a *sql.DB: it
// can't be seen whether a *sql.Conn is in a transaction.
//
// A commit after EscalateAfter is bounded by the DSN's readTimeout, and not by ctx, as that of mysqllock.RunTx is.
//
// Besides what optimistic.Do says, deadlocks are tried again, and a row that has changed by MariaDB's innodb_snapshot_isolation, as
// mysqllock.Retryable tells them. A lock that was not had within innodb_lock_wait_timeout, 50 s by default, is not: RetryIf.
//
// Errors: dblock.ErrInvalid for a *sql.DB whose sessions have autocommit off, a sql_select_limit, a
// completion_type or READ UNCOMMITTED; those of optimistic.Do; load's and save's, as they are, but:
// dblock.ErrUnavailable if there is no connection, or it was lost before save; nothing was written.
// dblock.ErrOutcomeUnknown if it was lost, or ctx ended, while save or the commit ran: it is not
// tried again, and may be written. An error of save's that is neither the server's nor dblock's is
// that, too, outside of a transaction: it may have come after the statement. Refuse in mutate what
// is to be refused.
func Update[T any](
	ctx context.Context, db DB, load func(context.Context, DB) (T, error), mutate func(context.Context, *T) error,
	save func(context.Context, DB, T) (T, error), opts ...optimistic.Option,
) (T, error) {
	var saved, none T
	e, err := effortOn(db, opts)
	if err != nil {
		return none, err
	}
	if err := attempt.CheckSteps(load != nil, mutate != nil, save != nil); err != nil {
		return none, err
	}
	if err := checkPool(ctx, db); err != nil {
		return none, unwritten(ctx, err)
	}
	s := steps[T]{load, mutate, save}
	err = e.plan.Run(ctx, func(ctx context.Context, attempt int) (err error) {
		if e.plan.Escalates(attempt) {
			saved, err = underLock(ctx, e, s)
		} else {
			saved, err = s.once(ctx, db, e.alone)
		}
		return err
	})
	if err != nil {
		return none, err
	}
	return saved, nil
}

// steps are those of one attempt.
type steps[T any] struct {
	load   func(context.Context, DB) (T, error)
	mutate func(context.Context, *T) error
	save   func(context.Context, DB, T) (T, error)
}

// once takes them. What save writes is written then and there if it is alone.
func (s steps[T]) once(ctx context.Context, db DB, alone bool) (saved T, err error) {
	row, err := s.load(ctx, db)
	if err != nil {
		return saved, unwritten(ctx, err)
	}
	if err := s.mutate(ctx, &row); err != nil {
		return saved, attempt.Stop(err)
	}
	saved, err = s.save(ctx, db, row)
	if alone {
		return saved, maybeWritten(ctx, err)
	}
	return saved, unwritten(ctx, err)
}

// underLock takes them in a transaction. It has copies of all: what a transaction keeps is on the heap, and who needs none
// does not pay for that.
func underLock[T any](ctx context.Context, e effort, s steps[T]) (saved T, err error) {
	err = e.locked(ctx, func(tx *sql.Tx) (err error) {
		saved, err = s.once(ctx, tx, false)
		return err
	})
	return saved, err
}

// effort is a plan, and what it is carried out on.
type effort struct {
	plan  attempt.Plan
	pool  *sql.DB // nil: the transaction is the caller's, or may be
	lock  func(context.Context, DB) error
	alone bool // a statement is written when it has run, and not with a transaction later
}

func effortOn(db DB, opts []optimistic.Option) (e effort, err error) {
	if e.plan, err = attempt.New(opts); err != nil {
		return e, err
	}
	if e.lock, err = lockOf(&e.plan); err != nil {
		return e, err
	}
	e.plan.IsConflict = mysql.IsConflict
	e.pool, e.alone, err = beginnerOf(db)
	if e.pool == nil {
		e.plan.CallersTx, e.plan.Lock = true, nil
	}
	e.plan.Row = e.row()
	return e, err
}

// locked runs fn in a transaction, behind the lock.
func (e *effort) locked(ctx context.Context, fn func(*sql.Tx) error) error {
	return mysqllock.RunTx(ctx, e.pool, onceOnly, func(tx *sql.Tx) error {
		if err := e.lock(ctx, tx); err != nil {
			return unwritten(ctx, err)
		}
		return fn(tx)
	})
}

// onceOnly: who counts the attempts is the plan.
var onceOnly = mysqllock.TxOptions{Attempts: 1}
