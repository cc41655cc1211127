//go:build unix && !solaris && !aix

package devdb

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// scan runs a statement as the administrator, and reads a number if into is one.
func (s *Server) scan(ctx context.Context, statement string, into *int) error {
	if s.Kind == Postgres {
		return s.withPostgres(ctx, func(conn *pgx.Conn) error {
			if into != nil {
				return conn.QueryRow(ctx, statement).Scan(into)
			}
			_, err := conn.Exec(ctx, statement)
			return err
		})
	}
	return s.withMySQL(ctx, func(db *sql.DB) error {
		if into != nil {
			return db.QueryRowContext(ctx, statement).Scan(into)
		}
		_, err := db.ExecContext(ctx, statement)
		return err
	})
}

// TestFaultsAReplicaHasEachCommit: what the primary has acknowledged is on the replica when the primary is killed.
func TestFaultsAReplicaHasEachCommit(t *testing.T) {
	t.Parallel()
	for _, kind := range startable(t) {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			primary, err := Start(ctx, kind, Options{Replicated: true})
			require.NoError(t, err)
			defer primary.Close()
			replica, err := StartReplica(ctx, primary)
			require.NoError(t, err)
			defer replica.Close()
			require.NoError(t, primary.scan(ctx, "CREATE SCHEMA s", nil))
			require.NoError(t, primary.scan(ctx, "CREATE TABLE s.t (id int PRIMARY KEY)", nil))
			for n := range 50 {
				require.NoError(t, primary.scan(ctx, fmt.Sprintf("INSERT INTO s.t VALUES (%d)", n), nil))
			}
			require.NoError(t, primary.Kill())
			require.NoError(t, replica.Promote(ctx))
			var n int
			require.NoError(t, replica.scan(ctx, "SELECT count(*) FROM s.t", &n))
			require.Equal(t, 50, n)
			require.NoError(t, replica.scan(ctx, "INSERT INTO s.t VALUES (50)", nil))
		})
	}
}
