package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// expiresAllOrNothing locks the row of one of two keys: ExpireIn writes nothing then, and neither key is free at its end.
func expiresAllOrNothing(t *testing.T, v *env) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := acquireSet(t, a, []string{"s1", "s2"})
	unlock := v.Locked(t, "SELECT 1 FROM dblock_lease WHERE lease_key = 's2' FOR UPDATE")
	const d = 100 * time.Millisecond
	err := lock.ExpireIn(t.Context(), d)
	assert.True(t, errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrLost), err)
	unlock()
	time.Sleep(2 * d)
	isHeld(t, b, "s1", "s2")
	_ = lock.Release(t.Context()) // the lock has ended for its own process, as the server was slow to refuse
}

// endsBeforeTheServer compares the end that a process believes in with the one that the server has, in each mode and for
// each way to set it.
func endsBeforeTheServer(t *testing.T, v *env) {
	const d, margin = 30 * time.Second, 2 * time.Second
	l := v.process(t, LeaseOptions{TTL: 2 * time.Minute, Margin: margin})
	left := "EXTRACT(epoch FROM held_until - clock_timestamp()) * 1000"
	if !v.Postgres() {
		left = "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), held_until) / 1000"
	}
	for table, mode := range map[string]dblock.Option{
		"dblock_lease": dblock.WithLabel(""), "dblock_reader": dblock.WithShared(), "dblock_permit": dblock.WithPermits(1, 2),
	} {
		for how, end := range map[string]dblock.Option{
			"max": dblock.WithMaxHold(d), "detached": dblock.WithoutRenewal(d), "moved": dblock.WithLabel(""),
		} {
			key := strings.TrimPrefix(table, "dblock_") + " " + how
			lock := suite.Acquire(t, l, key, mode, end)
			if how == "moved" {
				require.NoError(t, lock.ExpireIn(t.Context(), d))
			}
			server := v.Count(t, fmt.Sprintf("SELECT round(%s) FROM %s WHERE lease_key = '%s' AND handle IS NOT NULL", left, table, key))
			own := time.Until(lock.ValidUntil()) // measured later: it only gets less
			assert.GreaterOrEqual(t, time.Duration(server)*time.Millisecond-own, margin-time.Second, key)
			assert.NoError(t, context.Cause(lock.Context()), key)
			suite.Release(t, lock)
		}
	}
}
