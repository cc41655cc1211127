package bench

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Locker takes and releases exclusive locks, in whatever way is to be measured.
type Locker interface {
	// Lock waits until the client holds the key, and returns how to release it.
	Lock(ctx context.Context, key string) (unlock func(context.Context) error, err error)

	Close() error
}

// LockScenarios measure pairs of lock and unlock: "lock/…", where every client has a key of its
// own, and "hotlock/…", where all want the same key. That no two clients hold a key at once is
// checked as it goes.
func LockScenarios(
	name, about string, engines []devdb.Kind, conns []int, open func(context.Context, *Env) (Locker, error),
) []Scenario {
	return []Scenario{
		lockScenario("lock/"+name, about+"; a key for each client", engines, conns, false, open),
		lockScenario("hotlock/"+name, about+"; all clients want the same key", engines, conns, true, open),
	}
}

func lockScenario(
	name, about string, engines []devdb.Kind, conns []int, hot bool, open func(context.Context, *Env) (Locker, error),
) Scenario {
	return Scenario{
		Name: name, About: about, Engines: engines, Conns: conns,
		Open: func(ctx context.Context, env *Env) (Workload, error) {
			locker, err := open(ctx, env)
			if err != nil {
				return nil, err
			}
			return locks{locker: locker, hot: hot}, nil
		},
	}
}

type locks struct {
	locker Locker
	hot    bool
}

var errTwoHolders = errors.New("two clients held the same lock at once")

func (l locks) Close() error { return l.locker.Close() }

func (l locks) measures() any { return l.locker }

func (l locks) Round(_ context.Context, n int) (Round, error) {
	hot := "hot-" + strconv.Itoa(n)
	var hotHeld atomic.Bool
	return Round{Client: func(id int) (Op, error) {
		key, held := hot, &hotHeld
		if !l.hot {
			key, held = "key-"+strconv.Itoa(n)+"-"+strconv.Itoa(id), new(atomic.Bool)
		}
		return func(ctx context.Context) (int, error) {
			unlock, err := l.locker.Lock(ctx, key)
			if err != nil {
				return 0, err
			}
			if held.Swap(true) {
				return 0, errTwoHolders
			}
			runtime.Gosched() // another client that is let in has a chance to show
			held.Store(false)
			return 1, unlock(ctx)
		}, nil
	}}, nil
}
