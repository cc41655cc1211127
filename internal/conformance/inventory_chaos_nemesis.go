package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

// nemesis does to a server what happens to servers.
type nemesis struct {
	db     *sql.DB
	kind   devdb.Kind
	server *devdb.Server // nil: it can only end sessions
	random *rand.Rand
	did    map[string]int
}

// rage does one thing after the other until ctx ends, and leaves a healthy server.
func (n *nemesis) rage(ctx context.Context) error {
	for n.lull(ctx, 400*time.Millisecond) {
		what, err := n.strike(ctx)
		if err != nil {
			return fmt.Errorf("the nemesis itself failed, to %s: %w", what, err)
		}
		n.did[what]++
	}
	return nil
}

// strike does one thing, drawn at random. What it began it ends, whatever becomes of ctx.
func (n *nemesis) strike(ctx context.Context) (what string, err error) {
	dice := n.random.IntN(4)
	switch {
	case n.server == nil || dice < 2:
		return "end all sessions", n.endSessions(context.WithoutCancel(ctx))
	case dice == 2:
		return "kill -9", n.crash(ctx)
	default:
		if err := n.server.Freeze(); err != nil {
			return "freeze", err
		}
		n.lull(ctx, chaosTimeout*3/2) // now and then for longer than calls wait
		return "freeze", n.server.Thaw()
	}
}

// crash kills the server, and starts it again.
func (n *nemesis) crash(ctx context.Context) error {
	if err := n.server.Kill(); err != nil {
		return err
	}
	n.lull(ctx, 200*time.Millisecond)
	return n.server.Restart(context.WithoutCancel(ctx))
}

// lull lets some time pass, at random; false: ctx has ended.
func (n *nemesis) lull(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(time.Duration(n.random.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// endSessions ends every session in the database but its own.
func (n *nemesis) endSessions(ctx context.Context) error {
	if n.kind == devdb.Postgres {
		_, err := n.db.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		return err
	}
	rows, err := n.db.QueryContext(ctx,
		"SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
	if err != nil {
		return err
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return errors.Join(err, rows.Close())
		}
		ids = append(ids, id)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, id := range ids { // one that has ended meanwhile is no fault
		_, _ = n.db.ExecContext(ctx, fmt.Sprintf("KILL %d", id))
	}
	return nil
}
