package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

var sessionFaults = []Fault{
	{Name: "session terminated", Inject: func(ctx context.Context, e *env) (int, error) {
		return until(ctx, 60*time.Millisecond, func() (int, error) { return e.endSessions(ctx, "", 2) })
	}},
	{Name: "query cancelled", Inject: func(ctx context.Context, e *env) (int, error) {
		return until(ctx, 10*time.Millisecond, func() (int, error) { return e.cancelQueries(ctx) })
	}},
	{Name: "notification lost", Inject: func(ctx context.Context, e *env) (int, error) {
		which := "AND info LIKE '%SLEEP(%'"
		if e.kind == devdb.Postgres {
			which = "AND query ILIKE 'listen%'"
		}
		return until(ctx, 50*time.Millisecond, func() (int, error) { return e.endSessions(ctx, which, 10) })
	}},
	{Name: "too many connections", Inject: limitConnections},
}

// endSessions ends some of the workers' sessions.
func (e *env) endSessions(ctx context.Context, which string, most int) (n int, err error) {
	which = strings.ReplaceAll(which, "%", "%%") // for ids
	if e.kind == devdb.Postgres {
		ended, err := e.ids(ctx, "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE usename = '%s' "+
			which+fmt.Sprintf(" ORDER BY random() LIMIT %d) s", most))
		return len(ended), err
	}
	ids, err := e.ids(ctx, "SELECT id FROM "+devdb.Processlist+" WHERE user = '%s' "+which+fmt.Sprintf(" ORDER BY RAND() LIMIT %d", most))
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		if _, err := e.admin.ExecContext(ctx, "KILL "+id); err == nil { // it may have ended
			n++
		}
	}
	return n, nil
}

// cancelQueries cancels statements that run now.
func (e *env) cancelQueries(ctx context.Context) (n int, err error) {
	if e.kind == devdb.Postgres {
		ended, err := e.ids(ctx, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = '%s' AND state = 'active'")
		return len(ended), err
	}
	ids, err := e.ids(ctx, "SELECT id FROM "+devdb.Processlist+" WHERE user = '%s' AND command IN ('Query', 'Execute')")
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		if _, err := e.admin.ExecContext(ctx, "KILL QUERY "+id); err == nil {
			n++
		}
	}
	return n, nil
}

// limitConnections leaves the workers fewer connections than they need.
func limitConnections(ctx context.Context, e *env) (int, error) {
	few, many := "ALTER USER '%s'@'127.0.0.1' WITH MAX_USER_CONNECTIONS 4", "ALTER USER '%s'@'127.0.0.1' WITH MAX_USER_CONNECTIONS 0"
	if e.kind == devdb.Postgres {
		few, many = "ALTER ROLE %s CONNECTION LIMIT 4", "ALTER ROLE %s CONNECTION LIMIT -1"
	}
	if err := e.exec(ctx, fmt.Sprintf(few, e.app)); err != nil {
		return 0, err
	}
	n, err := e.endSessions(ctx, "", 1000)
	_, waited := lasting(ctx)
	return n, errors.Join(err, waited, e.exec(ctx, fmt.Sprintf(many, e.app)))
}
