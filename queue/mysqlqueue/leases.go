package mysqlqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/mysqllock"
)

// leastConns is how many connections a pool has, at least, that leases may have some of: two for good, and others now and then.
const leastConns = 8

// Leases are mysqllock's, on the pool.
func (d *database) Leases(ctx context.Context, ttl time.Duration, label string) (dblock.Locker, error) {
	if n := d.db.Stats().MaxOpenConnections; n > 0 && n < leastConns {
		return nil, fmt.Errorf("%w: the pool has no more than %d connections; with %d one process at a time looks after the queues", dblock.ErrUnsupported, n, leastConns)
	}
	return mysqllock.NewLeaseLocker(ctx, d.db.DB, mysqllock.LeaseOptions{TTL: ttl, Label: label, Schema: d.db.Schema})
}
