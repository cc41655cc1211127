// Package callertx passes a transaction of the caller's to a method of a public type. The driver
// that has the transaction is another package, and the method has no parameter for it: a type that
// every driver's transaction fits would be public.
package callertx

import "context"

type inTx struct {
	context.Context
	tx any
}

// In returns the context of a call that takes place in a transaction.
func In(ctx context.Context, tx any) context.Context { return inTx{ctx, tx} }

// Of returns the transaction of a call, and the context that In was given. Contexts made from that
// of In, such as those of functions that the call calls, have none.
func Of(ctx context.Context) (plain context.Context, tx any, found bool) {
	in, found := ctx.(inTx)
	if !found {
		return ctx, nil, false
	}
	return in.Context, in.tx, true
}
