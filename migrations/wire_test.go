package migrations_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// lying is a connection that changes what the server says.
type lying struct {
	net.Conn
	change func([]byte)
}

func (l lying) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.change(b[:n])
	return n, err
}

// through is the test's database by way of connections that lie.
func (e env) through(change func([]byte)) *sql.DB {
	e.Helper()
	db, err := openThrough(e.engine, e.dsn, func(conn net.Conn) net.Conn { return lying{conn, change} })
	e.must(err)
	e.Cleanup(func() { _ = db.Close() })
	return db
}

// openThrough wraps each connection, which is never encrypted: the wrapper is to see what passes.
func openThrough(engine migrations.Engine, dsn string, wrap func(net.Conn) net.Conn) (*sql.DB, error) {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	if engine == migrations.Postgres {
		config, err := devdb.ParsePostgres(dsn)
		if err != nil {
			return nil, err
		}
		config.ConnConfig.DialFunc, config.ConnConfig.TLSConfig, config.ConnConfig.Fallbacks = dial, nil, nil
		return stdlib.OpenDB(*config.ConnConfig), nil
	}
	config, err := devdb.ParseMySQL(dsn)
	if err != nil {
		return nil, err
	}
	config.DialFunc, config.TLSConfig, config.Logger = dial, "", &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// version is the server's own, with the major number that the test wants to see instead.
func (e env) version(lie string) (real, changed []byte) {
	e.Helper()
	var text string
	e.must(e.db.QueryRowContext(e.Context(), "SELECT version()").Scan(&text))
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "PostgreSQL "), " ")
	major, rest, _ := strings.Cut(text, ".")
	lie = strings.Repeat("0", max(0, len(major)-len(lie))) + lie // the message keeps its length
	return []byte(text), []byte(lie + "." + rest)
}

func TestServerTooOld(t *testing.T) {
	each(t, func(e env) {
		real, lie := e.version("5")
		db := e.through(func(b []byte) { copyOver(b, real, lie) })
		_, err := migrations.Up(t.Context(), db, migrations.Options{})
		var old *dblock.ServerVersionError
		if !errors.As(err, &old) || !errors.Is(err, dblock.ErrServerTooOld) {
			t.Errorf("Up: %v, want a *ServerVersionError", err)
		}
		if _, err := migrations.Status(t.Context(), db, migrations.Options{}); !errors.Is(err, dblock.ErrServerTooOld) {
			t.Errorf("Status: %v, want ErrServerTooOld", err)
		}
		e.wantTables("", nil)
		// The control: the same connections, without false answers.
		_, err = migrations.Up(t.Context(), e.through(func([]byte) {}), migrations.Options{})
		e.must(err)
	})
}

func copyOver(b, old, replacement []byte) {
	for i := bytes.Index(b, old); i >= 0; i = bytes.Index(b, old) {
		copy(b[i:], replacement)
	}
}

// A pooler greets with a process id of its own making.
func TestPoolerIsRefused(t *testing.T) {
	each(t, func(e env) {
		if e.engine != migrations.Postgres {
			e.up(migrations.Options{}) // the protocol has nothing that gives a proxy away
			return
		}
		var lied atomic.Int64
		db := e.through(func(b []byte) {
			// BackendKeyData: 'K', length 12, process id, secret.
			if i := bytes.Index(b, []byte{'K', 0, 0, 0, 12}); i >= 0 && i+9 <= len(b) {
				pid := b[i+5 : i+9]
				binary.BigEndian.PutUint32(pid, binary.BigEndian.Uint32(pid)+1_000_000)
				lied.Add(1)
			}
		})
		if _, err := migrations.Up(t.Context(), db, migrations.Options{}); !errors.Is(err, migrations.ErrPooler) {
			t.Errorf("got %v, want ErrPooler", err)
		}
		if lied.Load() == 0 {
			t.Error("the greeting was never seen")
		}
		e.wantTables("", nil)
	})
}

func TestUnreachableServer(t *testing.T) {
	each(t, func(e env) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		e.must(err)
		address := l.Addr().String()
		e.must(l.Close())
		dsn := "user:secret@tcp(" + address + ")/x"
		if e.engine == migrations.Postgres {
			dsn = "postgres://user:secret@" + address + "/x"
		}
		_, err = migrations.Up(t.Context(), e.open(dsn), migrations.Options{})
		if !errors.Is(err, dblock.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		if !strings.Contains(err.Error(), address) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: want the address and not the password", err)
		}
	})
}

// The database/sql wrapper around a pgxpool gives connections back to that pool when it throws them
// away, and the lock with them: the connection itself must end.
func TestConnectionInDoubtLeavesThePgxPool(t *testing.T) {
	t.Parallel()
	if !hasPostgres() {
		return // nothing like it exists elsewhere
	}
	pool := testdb.Postgres(t)
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	for _, c := range []struct {
		name   string
		end    func(any)
		stayed bool
	}{
		{"closed", postgres.CloseDriverConn, false},
		{"control: only thrown away", func(any) {}, true},
	} {
		pool.Reset()
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_lock(1)"); err != nil {
			t.Fatal(err)
		}
		_ = conn.Raw(func(driverConn any) error { c.end(driverConn); return driver.ErrBadConn })
		var held bool
		err = pool.QueryRow(t.Context(), "SELECT pg_advisory_unlock(1)").Scan(&held)
		if err != nil || held != c.stayed {
			t.Errorf("%s: the pool's next connection holds the lock: %v (%v), want %v", c.name, held, err, c.stayed)
		}
	}
}

// cutter ends connections before one of the statements that drop something.
type cutter struct {
	left int // until then; all statements are sent by one goroutine
}

func (c *cutter) wrap(conn net.Conn) net.Conn { return cutting{conn, c} }

type cutting struct {
	net.Conn
	*cutter
}

func (c cutting) Write(b []byte) (int, error) {
	if isDrop(b) {
		if c.left--; c.left <= 0 {
			_ = c.Conn.Close()
		}
	}
	return c.Conn.Write(b)
}
