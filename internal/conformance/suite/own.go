package suite

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
)

const Members = "SELECT count(*) FROM dblock_member"

// OwnServer starts a server that no other test uses and that syncs its commits, with a database that has dblock's tables.
// If the server is given from outside, and cannot be killed, both are nil.
func OwnServer(t *testing.T, kind devdb.Kind) (*devdb.Server, *DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server, err := devdb.Start(ctx, kind, devdb.Options{Durable: true})
	if err != nil && !errors.As(err, new(*devdb.NotFoundError)) {
		require.NoError(t, err)
	}
	if err != nil || server.PID() == 0 {
		t.Logf("no %s server to kill and freeze: only its sessions are", kind)
		return nil, nil
	}
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	dsn, _, err := server.CreateDatabase(ctx)
	require.NoError(t, err)
	db := OpenDB(t, kind, dsn)
	db.SetMaxIdleConns(0) // one that was idle may be dead
	require.NoError(t, Second(migrations.Up(ctx, db.DB, migrations.Options{})))
	return server, db
}

// ServerOfItsOwn is OwnServer for suites that have no DB yet.
func ServerOfItsOwn(t *testing.T, kind devdb.Kind) (server *devdb.Server, dsn string, db *sql.DB) {
	t.Helper()
	server, d := OwnServer(t, kind)
	if server == nil {
		return nil, "", nil
	}
	return server, d.DSN, d.DB
}
