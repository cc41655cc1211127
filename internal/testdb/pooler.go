package testdb

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
)

const envPgBouncer = "DBLOCK_PGBOUNCER"

// Pooled is the Postgres database of dsn behind a PgBouncer in transaction mode, which lives as
// long as the test: no connection to the server belongs to a client for longer than a transaction.
func Pooled(tb testing.TB, dsn string) string {
	tb.Helper()
	return PooledIn(tb, dsn, "transaction")
}

// PooledIn is Pooled with a PgBouncer in any pool_mode.
func PooledIn(tb testing.TB, dsn, mode string) string {
	tb.Helper()
	return alive(tb, func(ctx context.Context) (*devdb.Server, error) {
		p, err := pgbouncer(dsn, mode)
		if err != nil {
			return nil, err
		}
		return devdb.StartProgram(ctx, p)
	}).AdminDSN()
}

// pgbouncer lets clients in as they are, on the loopback address.
func pgbouncer(dsn, mode string) (devdb.Program, error) {
	path, err := findPgBouncer()
	if err != nil {
		return devdb.Program{}, err
	}
	config, err := devdb.ParsePostgres(dsn)
	if err != nil {
		return devdb.Program{}, err
	}
	behind := config.ConnConfig
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	return devdb.Program{
		Name: "pgbouncer", Path: path,
		Configure: func(dir string, port int) (map[string]string, []string) {
			const name = "pgbouncer.ini"
			lines := []string{
				"[databases]",
				fmt.Sprintf("%s = host=%s port=%d dbname=%s user=%s password=%s", behind.Database,
					quote(behind.Host), behind.Port, quote(behind.Database), quote(behind.User), quote(behind.Password)),
				"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", port), "unix_socket_dir =", "auth_type = any",
				"pool_mode = " + mode, "default_pool_size = 8", "max_client_conn = 500", "",
			}
			return map[string]string{name: strings.Join(lines, "\n")}, []string{filepath.Join(dir, name)}
		},
		DSN: func(port int) string {
			u := url.URL{
				Scheme: "postgres", User: url.User(behind.User),
				Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/" + behind.Database,
			}
			u.RawQuery = "sslmode=disable&default_query_exec_mode=cache_describe"
			return u.String()
		},
	}, nil
}

func findPgBouncer() (string, error) {
	if path := os.Getenv(envPgBouncer); path != "" {
		return path, nil
	}
	for _, path := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"} {
		if found, err := exec.LookPath(path); err == nil {
			return filepath.Abs(found)
		}
	}
	return "", fmt.Errorf("no PgBouncer found: install one (Debian and Ubuntu: scripts/servers.sh; macOS: brew install pgbouncer), "+
		"or set %s to its binary", envPgBouncer)
}
