package faultmatrix

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

var lockFaults = []Fault{
	{Name: "row locked by a stranger", Inject: func(ctx context.Context, e *env) (int, error) {
		return lockTables(ctx, e, "SELECT count(*) FROM (SELECT 1 FROM %s FOR UPDATE) s")
	}},
	{Name: "table locked by a stranger", Inject: func(ctx context.Context, e *env) (int, error) {
		if e.kind == devdb.Postgres {
			return lockTables(ctx, e, "LOCK TABLE %s IN ACCESS EXCLUSIVE MODE")
		}
		return lockTables(ctx, e, "LOCK TABLES %s WRITE")
	}},
	{Name: "old snapshot of a stranger", Inject: oldSnapshot},
}

// lockedTables are locked one after the other.
var lockedTables = []string{
	"dblock_lease", "dblock_stock", "dblock_queue_ready", "dblock_member", "dblock_queue_job", "matrix_value", "dblock_queue_claim",
}

// lockTables locks all rows of each table, or the table, for a moment.
func lockTables(ctx context.Context, e *env, statement string) (strikes int, err error) {
	const held = 300 * time.Millisecond
	conn, err := e.admin.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	do := func(statement string) error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	}
	wait := "SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1"
	if e.kind == devdb.Postgres {
		wait = "SET lock_timeout = '1s'"
	}
	if err := do(wait); err != nil {
		return 0, err
	}
	for _, table := range lockedTables {
		if err := do("BEGIN"); err != nil {
			return strikes, err
		}
		if do(fmt.Sprintf(statement, table)) == nil { // it may not get them in time
			strikes++
			time.Sleep(held)
		}
		if err := do("ROLLBACK"); err != nil {
			return strikes, err
		}
		if e.kind != devdb.Postgres {
			if err := do("UNLOCK TABLES"); err != nil {
				return strikes, err
			}
		}
	}
	return strikes, nil
}

// oldSnapshot keeps the server from cleaning up what was deleted.
func oldSnapshot(ctx context.Context, e *env) (int, error) {
	conn, err := e.admin.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range []string{
		"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ", "BEGIN", "SELECT count(*) FROM dblock_lease",
	} {
		if e.kind != devdb.Postgres && statement[:3] == "SET" {
			continue // it is the default
		}
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return 0, err
		}
	}
	n, err := lasting(ctx)
	_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return n, err
}
