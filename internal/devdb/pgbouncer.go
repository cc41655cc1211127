package devdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pooler is not one of the kinds that Start knows: it is nothing without a Postgres behind it.
const pooler Kind = "pgbouncer"

// StartPooler gives a PgBouncer in transaction mode before the Postgres database of dsn. Its AdminDSN is that
// database's, through it; no connection to the server is anybody's for longer than a transaction.
func StartPooler(ctx context.Context, dsn string) (*Server, error) {
	behind, err := ParsePostgres(dsn)
	if err != nil {
		return nil, err
	}
	path, err := findPooler()
	if err != nil {
		return nil, err
	}
	dir, err := makeFolder()
	if err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	l := &local{
		bin: &binaries{kind: pooler, daemon: path}, dir: dir,
		engine: poolerEngine{behind: behind.ConnConfig.Config},
	}
	s := &Server{Kind: pooler, Source: filepath.Dir(path), local: l}
	if err := l.startNew(ctx, s); err != nil {
		return nil, errors.Join(fmt.Errorf("start PgBouncer from %s: %w", s.Source, err), l.close())
	}
	return s, nil
}

func findPooler() (string, error) {
	if path := os.Getenv(envPgBouncer); path != "" {
		return path, nil
	}
	if path, err := exec.LookPath(string(pooler)); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"} { // where packages put it
		if path := filepath.Join(dir, string(pooler)); executable(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("no PgBouncer found: install one (Debian and Ubuntu: scripts/servers.sh; macOS: brew install pgbouncer), "+
		"or set %s to its binary", envPgBouncer)
}

type poolerEngine struct {
	disposable
	behind pgconn.Config
}

const (
	poolerConfig = "pgbouncer.ini"
	poolerPort   = "port.ini"
)

// initialize writes the configuration. Clients are let in as they are, on the loopback address.
func (e poolerEngine) initialize(_ context.Context, l *local) error {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	path := l.dir.join(poolerConfig)
	lines := []string{
		"[databases]",
		fmt.Sprintf("%s = host=%s port=%d dbname=%s user=%s password=%s", e.behind.Database,
			quote(e.behind.Host), e.behind.Port, quote(e.behind.Database), quote(e.behind.User), quote(e.behind.Password)),
		"[pgbouncer]", "listen_addr = 127.0.0.1", "unix_socket_dir =", "auth_type = any",
		"pool_mode = transaction", "default_pool_size = 8", "max_client_conn = 500",
		"%include " + l.dir.join(poolerPort),
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return giveToServer(path)
}

// args has the port where alone PgBouncer reads it: in a file. Should that not be writable, it says so.
func (poolerEngine) args(l *local) []string {
	path := l.dir.join(poolerPort)
	_ = os.WriteFile(path, fmt.Appendf(nil, "listen_port = %d\n", l.port), 0o600)
	_ = giveToServer(path)
	return []string{l.dir.join(poolerConfig)}
}

func (e poolerEngine) adminDSN(l *local) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(e.behind.User),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)), Path: "/" + e.behind.Database,
	}
	u.RawQuery = "sslmode=disable&default_query_exec_mode=cache_describe"
	return u.String()
}

// ready is when the database answers through it.
func (poolerEngine) ready(ctx context.Context, _ *local, s *Server) error {
	return s.withPostgres(ctx, func(c *pgx.Conn) error { return c.Ping(ctx) })
}
