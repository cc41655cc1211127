package pgqueue

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/pglock"
)

// Leases are pglock's, with connections of their own. They share the heartbeat of the host's leases with the same options.
func (d *database) Leases(ctx context.Context, ttl time.Duration, label string) (dblock.Locker, error) {
	return pglock.NewLeaseLocker(ctx, d.host, pglock.LeaseOptions{TTL: ttl, Label: label, Schema: d.chosen})
}
