package engine

import (
	"context"

	"github.com/dblock-go/dblock/internal/member"
)

// Queue has methods of package queue for its drivers. Package queue sets it at initialization;
// package link, which can name the types of both, gives it a type.
var Queue any

// CallerTx is a transaction of the caller's, of whatever driver.
type CallerTx struct{ Tx any }

// Begin is that of a Beginner, for a handler that knows the type of the transaction.
type Begin func(ctx context.Context, m member.ID, first *Place) (tx any, w Work, got Beginning, err error)
