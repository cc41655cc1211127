package main

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
)

// etcdScenarios are the mutexes of etcd's own client.
func etcdScenarios() []bench.Scenario {
	return append(
		bench.LockScenarios("etcd", "etcd's concurrency.Mutex, on an etcd of its own; its sessions share one connection", nil,
			databaseConns(),
			func(ctx context.Context, env *bench.Env) (bench.Locker, error) { return openEtcd(ctx, env.Conns) }),
		lockedSale("etcd",
			func(ctx context.Context, env *bench.Env) (describedLocker, error) { return openEtcd(ctx, env.Conns) }))
}

// etcdLocks lend a session to whoever wants a lock: two mutexes of one session on one key are one
// owner to etcd, and would not exclude each other.
type etcdLocks struct {
	described
	server   *lockServer
	client   *clientv3.Client
	sessions []*concurrency.Session
	free     chan *concurrency.Session
}

// openEtcd starts an etcd that syncs every write, as it does by default.
func openEtcd(ctx context.Context, sessions int) (*etcdLocks, error) {
	server, err := startLockServer(ctx, devdb.Etcd, true, "one member, every write synced")
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.AdminDSN()}})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	l := &etcdLocks{server.about(), server, client, nil, make(chan *concurrency.Session, sessions)}
	for range sessions {
		session, err := concurrency.NewSession(client)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.sessions = append(l.sessions, session)
		l.free <- session
	}
	return l, nil
}

func (l *etcdLocks) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	var session *concurrency.Session
	select {
	case session = <-l.free:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	mutex := concurrency.NewMutex(session, "/dblock-bench/"+key)
	if err := mutex.Lock(ctx); err != nil {
		l.free <- session
		return nil, err
	}
	return func(ctx context.Context) error {
		defer func() { l.free <- session }()
		return mutex.Unlock(ctx)
	}, nil
}

func (l *etcdLocks) Close() error {
	var errs []error
	for _, session := range l.sessions {
		errs = append(errs, session.Close())
	}
	return errors.Join(append(errs, l.client.Close(), l.server.Close())...)
}
