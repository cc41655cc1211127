package suite

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/migrations"
)

const Members = "SELECT count(*) FROM dblock_member"

// ServerOfItsOwn is a server that nobody else uses and that syncs its commits, with a database that has
// dblock's tables. Where the server is given, and can't be killed, it is nil.
func ServerOfItsOwn(t *testing.T, kind devdb.Kind) (server *devdb.Server, dsn string, db *sql.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server, err := devdb.Start(ctx, kind, devdb.Options{Durable: true})
	if err != nil && !errors.As(err, new(*devdb.NotFoundError)) {
		t.Fatal(err)
	}
	if err != nil || server.PID() == 0 {
		t.Logf("no %s server to kill and freeze: only its sessions are", kind)
		return nil, "", nil
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if dsn, _, err = server.CreateDatabase(ctx); err != nil {
		t.Fatal(err)
	}
	if db, err = ConnectOn(kind, dsn, &faultconn.Dialer{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(0) // one that was idle may be dead
	if _, err := migrations.Up(ctx, db, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	return server, dsn, db
}
