package bench

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// hasPostgres tells whether Postgres is under test.
func hasPostgres() bool {
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			return true
		}
	}
	return false
}

func TestSQLAnswersOfAnySize(t *testing.T) {
	t.Parallel()
	if !hasPostgres() {
		return
	}
	r := openScript(t, devdb.Postgres, `
SELECT repeat('x', 100000) FROM generate_series(1, 20);
SELECT i FROM generate_series(1, 20000) i;
;
/* nothing but a comment */;
DO $$ BEGIN FOR i IN 1..100 LOOP RAISE NOTICE '%', repeat('n', 1000); END LOOP; END $$;
SET application_name = 'changed';
INSERT INTO t SELECT 1 WHERE false;
`, "CREATE TABLE t (a int)", &Env{})
	r.do(3)
}

func TestSQLLongErrors(t *testing.T) {
	t.Parallel()
	if !hasPostgres() {
		return
	}
	r := openScript(t, devdb.Postgres, "DO $$ BEGIN RAISE EXCEPTION '%', repeat('e', 50000); END $$;", "", &Env{})
	if _, err := r.op(0)(t.Context()); err == nil || !strings.Contains(err.Error(), strings.Repeat("e", 50000)) {
		t.Errorf("got %.200v", err)
	}
}

func TestSQLCopyIsRefused(t *testing.T) {
	t.Parallel()
	if !hasPostgres() {
		return
	}
	for _, script := range []string{"COPY t FROM STDIN", "COPY t TO STDOUT"} {
		r := openScript(t, devdb.Postgres, script, "CREATE TABLE t (a int)", &Env{})
		if _, err := r.op(0)(t.Context()); !errors.Is(err, errCopy) || !strings.HasPrefix(err.Error(), "file.sql:1: ") {
			t.Errorf("%s: got %v", script, err)
		}
	}
}

// An operation's context may end after it: that must not end the next one.
func TestSQLContextsOfOneOperation(t *testing.T) {
	t.Parallel()
	if !hasPostgres() {
		return
	}
	op := openScript(t, devdb.Postgres, "SELECT 1", "", &Env{}).op(0)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := op(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
}

// One server lives through both, because starting one takes seconds.
func TestSQLOnAServerThatFails(t *testing.T) {
	t.Parallel()
	if !hasPostgres() {
		return
	}
	server, dsn := ownServer(t, devdb.Postgres)
	if server == nil {
		return
	}
	for _, tt := range []struct {
		name string
		fail func() error
		end  bool
	}{
		{"frozen", server.Freeze, true},
		{"killed", server.Kill, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := openScript(t, devdb.Postgres, "\n\\set n 0\nUPDATE t SET n = n + :n;", "CREATE TABLE IF NOT EXISTS t (n bigint); INSERT INTO t VALUES (0);",
				&Env{Clients: 3, Conns: 3, DSN: dsn, Server: server})
			ctx, end := context.WithCancelCause(t.Context())
			begun := make(chan struct{}, 1)
			result := make(chan error, 1)
			go func() {
				_, err := r.round.run(ctx, load{clients: 3, time: time.Hour, watch: func(rec *recorder) func() {
					go func() {
						for rec.totals().ok == 0 {
							time.Sleep(time.Millisecond)
						}
						begun <- struct{}{}
					}()
					return func() {}
				}})
				result <- err
			}()
			<-begun
			if err := tt.fail(); err != nil {
				t.Fatal(err)
			}
			want := "file.sql:3: "
			if tt.end { // nothing but the caller can end it
				end(errors.New("enough"))
				want = "enough"
			}
			if err := <-result; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
			if tt.end {
				if err := server.Thaw(); err != nil {
					t.Fatal(err)
				}
			}
			end(nil)
		})
	}
}

// lateConn comes back late from its first writes, those that make a connection: the answer is there
// before.
type lateConn struct {
	net.Conn
	writes *int
}

func (c lateConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if *c.writes++; *c.writes <= 3 {
		time.Sleep(50 * time.Millisecond)
	}
	return n, err
}

// pgx reads in the background once a write takes long, and goes on with it into our first answer.
func TestWireGetsItsFirstAnswer(t *testing.T) {
	t.Parallel()
	if !hasPostgres() {
		return
	}
	cfg, err := devdb.ParsePostgres(testdb.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return lateConn{conn, new(int)}, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w, err := dialWire(ctx, &cfg.ConnConfig.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.begin(ctx), w.simple("SELECT 1"), w.close()); err != nil {
		t.Error(err)
	}
}
