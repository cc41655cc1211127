package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

var serverFaults = []Fault{
	{Name: "server killed", Own: true, Inject: func(ctx context.Context, e *env) (int, error) {
		if err := e.server.Kill(); err != nil {
			return 0, err
		}
		time.Sleep(200 * time.Millisecond)
		return 1, e.server.Restart(ctx)
	}},
	{Name: "server frozen", Own: true, Inject: func(ctx context.Context, e *env) (int, error) {
		if err := e.server.Freeze(); err != nil {
			return 0, err
		}
		n, err := lasting(ctx)
		return n, errors.Join(err, e.server.Thaw())
	}},
	{Name: "server restarted in good order", Own: true, Inject: restart},
	{Name: "failover to a synchronous replica", Failover: true, Inject: failover},
	{Name: "server process crashed", Own: true, Engines: []devdb.Kind{devdb.Postgres}, Inject: crashBackend},
}

// restart has the server shut down by itself, and starts it again.
func restart(ctx context.Context, e *env) (int, error) {
	pid, stop := e.server.PID(), terminate
	if e.kind == devdb.Postgres {
		stop = interrupt // which ends sessions
	}
	if err := stop(pid); err != nil {
		return 0, err
	}
	if !soon(ctx, 30*time.Second, func() bool { return !runs(pid) }) {
		return 0, fmt.Errorf("the server did not shut down")
	}
	return 1, e.server.Restart(ctx)
}

// crashBackend kills a process of the server, which then ends all sessions and recovers.
func crashBackend(ctx context.Context, e *env) (int, error) {
	pids, err := e.ids(ctx, "SELECT pid FROM pg_stat_activity WHERE usename = '%s' LIMIT 1")
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	pid, err := strconv.Atoi(pids[0])
	if err != nil {
		return 0, err
	}
	if err := kill(pid); err != nil {
		return 0, err
	}
	_, err = lasting(ctx)
	return 1, err
}

// failover kills the server, promotes its replica and leads the network there.
func failover(ctx context.Context, e *env) (int, error) {
	if err := e.server.Kill(); err != nil {
		return 0, err
	}
	e.link.cut()
	if err := testdb.Promote(ctx, e.replica); err != nil {
		return 0, err
	}
	e.link.lead(fmt.Sprintf("127.0.0.1:%d", e.replica.Port()))
	admin, err := openAdmin(e.kind, strings.Replace(e.dsn, strconv.Itoa(e.server.Port()), strconv.Itoa(e.replica.Port()), 1))
	if err != nil {
		return 0, err
	}
	err = e.admin.Close()
	e.admin, e.drop = admin, nil // what was made goes with the servers
	return 1, err
}
