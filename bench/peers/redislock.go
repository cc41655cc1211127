package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/dblock-go/dblock/bench"
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
	// redislockTTL is how long a lock lives that is not released. For redislock it also bounds how
	// long a client waits.
	redislockTTL = 10 * time.Second

	// redislockAsks is how many times a second all waiting clients together ask again. Where 64
	// clients asked every 2 ms, 2,000 every 10 ms, the asking took the processors, and the locks a
	// second were half and a fiftieth of this.
	redislockAsks = 5000
)

var errRedisURL = errors.New("not readable as a Redis URL: write redis://:password@host:6379/0 and percent-encode special characters in the password")

// redisServer writes nothing to the disk, which is also Redis' default until minutes have passed.
var redisServer = peerServer{
	name: "redis", daemon: "redis-server", envURL: "DBLOCK_REDIS_URL", envPath: "DBLOCK_REDIS_SERVER", durability: "in memory, no append-only file",
	command: func(cmd *exec.Cmd, dir string, port int) string {
		password := rand.Text()
		cmd.Args = append(cmd.Args, "-") // the configuration comes from standard input: others can read arguments
		cmd.Stdin = strings.NewReader(fmt.Sprintf("bind 127.0.0.1\nport %d\nrequirepass %s\nsave \"\"\nappendonly no\ndir %q\n", port, password, dir))
		return fmt.Sprintf("redis://:%s@127.0.0.1:%d/0", password, port)
	},
	version: func(ctx context.Context, url string) (string, error) {
		client, err := openRedis(url, 1)
		if err != nil {
			return "", err
		}
		defer func() { _ = client.Close() }()
		info := client.InfoMap(ctx, "server")
		return info.Item("Server", "redis_version"), info.Err()
	},
}

func openRedis(url string, conns int) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, errRedisURL // its own error may show the password
	}
	o.PoolSize = conns
	return redis.NewClient(o), nil
}

type redisLocks struct {
	described
	server  *server
	redis   *redis.Client
	locks   *redislock.Client
	backoff time.Duration
}

func openRedislock(ctx context.Context, env *bench.Env, conns int) (*redisLocks, error) {
	server, err := redisServer.start(ctx)
	if err != nil {
		return nil, err
	}
	client, err := openRedis(server.url, conns)
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	backoff := max(time.Millisecond, time.Second*time.Duration(env.Clients)/redislockAsks)
	return &redisLocks{server.described, server, client, redislock.New(client), backoff}, nil
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
