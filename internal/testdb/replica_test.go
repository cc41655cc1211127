package testdb

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/devdb"
)

// TestFaultsAReplicaHasEachCommit: what the primary has acknowledged is on the replica when the
// primary is killed.
func TestFaultsAReplicaHasEachCommit(t *testing.T) {
	t.Parallel()
	for _, kind := range Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			primary, err := devdb.Start(ctx, kind, devdb.Options{Replicated: true})
			require.NoError(t, err)
			defer primary.Close()
			if primary.PID() == 0 {
				t.Logf("the %s server is given by %s, and not replicated here", kind, primary.Source)
				return
			}
			replica, err := StartReplica(ctx, primary)
			require.NoError(t, err)
			defer replica.Close()
			require.NoError(t, execAdmin(ctx, primary, "CREATE SCHEMA s", "CREATE TABLE s.t (id int PRIMARY KEY)"))
			for n := range 50 {
				require.NoError(t, execAdmin(ctx, primary, fmt.Sprintf("INSERT INTO s.t VALUES (%d)", n)))
			}
			require.NoError(t, primary.Kill())
			require.NoError(t, Promote(ctx, replica))
			db, err := openPlain(kind, replica.AdminDSN())
			require.NoError(t, err)
			defer db.Close()
			var n int
			require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM s.t").Scan(&n))
			require.Equal(t, 50, n)
			require.NoError(t, execAdmin(ctx, replica, "INSERT INTO s.t VALUES (50)"))
		})
	}
}
