package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/devdb"
)

// OwnNear is Own for a test that is Apart: the far machine reaches the server, too. near and far
// are what the two ends call one database of it by.
func OwnNear(tb testing.TB, kind devdb.Kind) (near, far string) {
	tb.Helper()
	args := []string{"--bind-address=0.0.0.0"}
	if kind == devdb.Postgres {
		args = []string{"-c", "listen_addresses=0.0.0.0", "-c", "hba_file=" + letIn(tb)}
	}
	server := Own(tb, kind, args...)
	if server == nil {
		tb.Fatal("testdb: a server that is given has no network of the test's")
	}
	near, _, err := server.CreateDatabase(tb.Context())
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	addr := net.JoinHostPort(nearAddr, fmt.Sprint(server.Port()))
	if kind == devdb.Postgres {
		u, err := url.Parse(near)
		if err != nil {
			tb.Fatalf("testdb: %v", err)
		}
		u.Host = addr
		return near, u.String()
	}
	config, err := devdb.ParseMySQL(near)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	makeFarUser(tb, config)
	config.Addr = addr
	return near, config.FormatDSN()
}

// letIn is the pg_hba.conf of a Postgres: it must be readable for the user that the server runs as.
func letIn(tb testing.TB) (path string) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "dblock-test-")
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "pg_hba.conf")
	if err := os.WriteFile(path, []byte("host all all 0.0.0.0/0 scram-sha-256\n"), 0o644); err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	return path
}

// makeFarUser makes a user of the same name and password as the one that may connect from this
// machine alone.
func makeFarUser(tb testing.TB, config *mysql.Config) {
	tb.Helper()
	connector, err := mysql.NewConnector(config)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	for _, statement := range []string{
		"CREATE USER '%s'@'" + farAddr + "' IDENTIFIED BY '" + config.Passwd + "'", "GRANT ALL ON *.* TO '%s'@'" + farAddr + "'",
	} {
		if _, err := db.ExecContext(context.WithoutCancel(tb.Context()), fmt.Sprintf(statement, config.User)); err != nil {
			tb.Fatalf("testdb: %v", err)
		}
	}
}
