package dblock

import (
	"context"
	"log/slog"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
)

// Packages of this module need more of the root package than callers do. What they need is not
// exported, so that no caller can build a request or a lock past its checks. They get it as the
// methods of within, through package internal/root, which documents them. This package can't import
// that one, which has its types: hence the variable.
func init() { contract.Root = within{} }

type within struct{}

// skipped are the calls of newRequest that are not its user's: its own, within's, root's.
const skipped = 3

func (within) NewRequest(key string, opts []Option) (request, error) {
	return newRequest(skipped, key, opts)
}

func (within) NewSetRequest(keys []string, opts []Option) (request, error) {
	return newSetRequest(skipped, keys, opts)
}

func (within) NewLock(ctx context.Context, owner any, r request, h hold) (*Lock, func(Reason)) {
	return newLock(ctx, owner, r, h)
}

func (within) Reenter(ctx context.Context, owner any, r request) (*Lock, error) {
	return reenter(ctx, owner, r)
}

func (within) RunUnder(ctx context.Context, l *Lock, f func(context.Context) error) error {
	return l.runUnder(ctx, f)
}

func (within) GuardObserver(o Observer, log *slog.Logger) Observer { return o.guarded(log) }

func (within) WaitBound(w TxWait) (time.Duration, bool) { return w.bound, w.kind == waitAtMost }

func (within) CheckText(field, s string, least, most int) error {
	return checkText(field, s, least, most)
}

func (within) CheckLimit(limit int) error { return checkLimit(limit) }
