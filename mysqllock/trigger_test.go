package mysqllock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/lease"
)

// TestTriggersHideNoToken has audit triggers on the tables of leases, which replace what a
// statement says of its insert id. Grants count, with the tokens of their rows.
func TestTriggersHideNoToken(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		// The ids of the audit's rows are as large as tokens are.
		r.exec("CREATE TABLE audit (id BIGINT AUTO_INCREMENT PRIMARY KEY, named VARBINARY(512)) AUTO_INCREMENT = 4000000000000000")
		for n, of := range []string{
			"INSERT ON dblock_lease", "UPDATE ON dblock_lease", "INSERT ON dblock_reader", "UPDATE ON dblock_permit",
			"INSERT ON dblock_member", "UPDATE ON dblock_member", "INSERT ON dblock_ticket",
		} {
			column := "lease_key"
			if strings.HasSuffix(of, "member") {
				column = "member_id"
			}
			r.exec(fmt.Sprintf("CREATE TRIGGER audit_%d AFTER %s FOR EACH ROW BEGIN "+
				"INSERT INTO audit (named) VALUES (new.%s); DO LAST_INSERT_ID(5000000000000000); END", n, of, column))
		}
		for want := int64(1); want <= 2; want++ {
			beat, alive, err := r.Heartbeat(r.ctx, us.Member, time.Hour)
			r.ok(err)
			if beat != want || !alive {
				r.Errorf("heartbeat %d: %d, %v", want, beat, alive)
			}
			us.Heartbeat = want
		}
		check := func(table string, asks []lease.AcquireRequest, got []lease.AcquireResult, err error) {
			r.Helper()
			r.ok(err)
			for i, a := range asks {
				var token int64
				r.ok(r.db.QueryRowContext(r.ctx, "SELECT MAX(token) FROM "+table+" WHERE lease_key = ? AND handle = ?", a.Key, a.Handle[:]).Scan(&token))
				if got[i].Err != nil || got[i].Token != token || got[i].Handle != a.Handle {
					r.Errorf("%s of %q: %+v, want the token %d", table, a.Key, got[i], token)
				}
			}
		}
		acquire := func(keys ...string) {
			r.Helper()
			asks, backs := make([]lease.AcquireRequest, len(keys)), make([]lease.ReleaseRequest, len(keys))
			for i, key := range keys {
				asks[i] = ask(key)
				backs[i] = lease.ReleaseRequest{Key: key, Handle: asks[i].Handle}
			}
			got, err := r.leases.acquireExclusive(r.ctx, us, asks)
			check("dblock_lease", asks, got, err)
			r.release(backs...)
		}
		for range 2 { // rows that are made, and rows that are free
			acquire("a")
			acquire("b", "c", "d")
		}
		acquire("a", "b", "e") // some of both
		set := []lease.AcquireRequest{ask("a"), ask("b")}
		set[1].Handle = set[0].Handle
		got, err := r.leases.acquireSet(r.ctx, us, set)
		check("dblock_lease", set, got, err)
		shared := []lease.AcquireRequest{ask("s"), ask("s"), ask("t")}
		got, err = r.readers.acquireShared(r.ctx, us, shared)
		check("dblock_reader", shared, got, err)
		r.ok(r.permits.makeSemaphore(r.ctx, "p", 5))
		some := []lease.AcquireRequest{permits("p", 2, 5), permits("p", 3, 5)}
		got, err = r.permits.acquirePermits(r.ctx, us, some)
		check("dblock_permit", some, got, err)
		waiting := []lease.AcquireRequest{ask("q"), ask("q")}
		tickets, err := r.tickets.enqueue(r.ctx, us, waiting)
		r.ok(err)
		for i, a := range waiting {
			var ticket int64
			r.ok(r.db.QueryRowContext(r.ctx, "SELECT ticket FROM dblock_ticket WHERE handle = ?", a.Handle[:]).Scan(&ticket))
			if tickets[i].Ticket != ticket {
				r.Errorf("ticket %d, want %d", tickets[i].Ticket, ticket)
			}
		}
	})
}
