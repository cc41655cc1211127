package main

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
)

// redislockScenarios are github.com/bsm/redislock on go-redis.
func redislockScenarios() []bench.Scenario {
	// go-redis makes 10 connections a core.
	conns := []int{10 * runtime.GOMAXPROCS(0)}
	return append(
		bench.LockScenarios("redislock", "github.com/bsm/redislock on a Redis of its own", nil, conns,
			func(ctx context.Context, env *bench.Env) (bench.Locker, error) {
				return openRedislock(ctx, env, env.Conns)
			}),
		lockedSale("redislock",
			func(ctx context.Context, env *bench.Env) (describedLocker, error) {
				return openRedislock(ctx, env, conns[0])
			}))
}

const (
	// redislockTTL is how long a lock lives that nobody gives back. For redislock it also bounds how
	// long a caller waits.
	redislockTTL = 10 * time.Second

	// redislockAsks is how many times a second all waiting callers together ask again. Where 64
	// callers asked every 2 ms, 2,000 every 10 ms, the asking took the processors, and the locks a
	// second were half and a fiftieth of this.
	redislockAsks = 5000
)

var errRedisURL = errors.New("go-redis can't read the server's URL")

type redisLocks struct {
	described
	server  *lockServer
	redis   *redis.Client
	locks   *redislock.Client
	backoff time.Duration
}

// openRedislock starts a Redis that writes nothing to the disk, as it does not by default either
// before minutes have passed.
func openRedislock(ctx context.Context, env *bench.Env, conns int) (*redisLocks, error) {
	server, err := startLockServer(ctx, devdb.Redis, false, "in memory, no append-only file")
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseURL(server.AdminDSN())
	if err != nil {
		return nil, errors.Join(errRedisURL, server.Close()) // its own error may show the password
	}
	o.PoolSize = conns
	client := redis.NewClient(o)
	backoff := max(time.Millisecond, time.Second*time.Duration(env.Clients)/redislockAsks)
	return &redisLocks{server.about(), server, client, redislock.New(client), backoff}, nil
}

// Lock waits with redislock's own means: it asks again and again.
func (l *redisLocks) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	lock, err := l.locks.Obtain(ctx, "dblock-bench/"+key, redislockTTL, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(l.backoff),
	})
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
		return nil, &bench.Failure{Kind: "busy", Err: err}
	}
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

func (l *redisLocks) Close() error { return errors.Join(l.redis.Close(), l.server.Close()) }
