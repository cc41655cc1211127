package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/dblock-go/dblock/bench"
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

// etcdLocks lend a session to each lock: two mutexes of one session on one key are one
// owner to etcd, and would not exclude each other.
type etcdLocks struct {
	described
	server   *server
	client   *clientv3.Client
	sessions []*concurrency.Session
	free     chan *concurrency.Session
}

// etcdServer is a cluster of one that syncs every write, as etcd does by default. No other member
// can join: their socket is in its folder.
var etcdServer = peerServer{
	name: "etcd", daemon: "etcd", envURL: "DBLOCK_ETCD_URL", envPath: "DBLOCK_ETCD", durability: "one member, every write synced",
	command: func(cmd *exec.Cmd, dir string, port int) string {
		const members = "unix://members:0"
		url := fmt.Sprintf("http://127.0.0.1:%d", port)
		cmd.Args = append(cmd.Args, "--name=bench", "--data-dir="+dir, "--listen-client-urls="+url, "--advertise-client-urls="+url,
			"--listen-peer-urls="+members, "--initial-advertise-peer-urls="+members, "--initial-cluster=bench="+members,
			"--log-outputs=stderr") // below a process 1 the default would be systemd's journal
		return url
	},
	version: func(ctx context.Context, url string) (string, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
		if err != nil {
			return "", err
		}
		defer func() { _ = client.Close() }()
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		status, err := client.Status(ctx, url)
		if err != nil {
			return "", err
		}
		if status.Leader == 0 {
			return "", errors.New("it has no leader")
		}
		return status.Version, nil
	},
}

func openEtcd(ctx context.Context, sessions int) (*etcdLocks, error) {
	server, err := etcdServer.start(ctx)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.url}})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	l := &etcdLocks{server.described, server, client, nil, make(chan *concurrency.Session, sessions)}
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
