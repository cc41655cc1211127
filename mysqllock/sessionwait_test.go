package mysqllock

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

// TestAWaitThatEndsKillsNoOtherSession: after a restart the server may have given the number of a
// session that waited to another one. The end of the wait does not end that.
func TestAWaitThatEndsKillsNoOtherSession(t *testing.T) {
	each(t, plain, func(r rig) {
		other, err := r.db.Conn(r.ctx)
		r.ok(err)
		defer other.Close()
		var number int64
		r.ok(other.QueryRowContext(r.ctx, "SELECT CONNECTION_ID()").Scan(&number))
		name := session.ID(NameOf("a", "b", t.Name()))
		_, err = other.ExecContext(r.ctx, "DO GET_LOCK("+quote(string(name))+", 0)")
		r.ok(err)
		for what, id := range map[string]int64{"of another session": number, "its own": 0} {
			conn, err := r.db.Conn(r.ctx)
			r.ok(err)
			defer conn.Close()
			var own int64
			r.ok(conn.QueryRowContext(r.ctx, "SELECT CONNECTION_ID()").Scan(&own))
			c := &sessionConn{conn: conn, pool: r.db, id: own}
			if id != 0 {
				c.id = id
			}
			ctx, cancel := context.WithTimeout(r.ctx, 500*time.Millisecond)
			defer cancel()
			if err := c.Wait(ctx, name, false); err == nil {
				r.Errorf("%s: it has a lock that is held", what)
			}
			r.until("the end of the wait", func() bool {
				var n int
				r.ok(other.QueryRowContext(r.ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?", own).Scan(&n))
				return n == 0
			})
		}
		r.ok(other.PingContext(r.ctx))
	})
}
