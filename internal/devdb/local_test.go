//go:build unix && !solaris && !aix

package devdb

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// One server a kind lives through all of this, in this order, because starting one takes seconds.
func TestLife(t *testing.T) {
	t.Parallel()
	eachOf(t, startable(t), func(t *testing.T, kind Kind) {
		s := start(t, kind, true)
		if kind != Postgres {
			t.Run("temporary files are its own", func(t *testing.T) { temporaryFilesAreItsOwn(t, s) })
		}
		t.Run("drop ends sessions", func(t *testing.T) { dropEndsSessions(t, s) })
		t.Run("freeze holds answers back", func(t *testing.T) { freezeHoldsAnswersBack(t, s) })
		t.Run("kill and restart keeps data", func(t *testing.T) { restartKeepsData(t, s) })
		t.Run("a taken port is told from other failures", func(t *testing.T) { takenPort(t, s) })
		t.Run("a failed start shows the log", func(t *testing.T) { failedStart(t, s) })
	})
}

func restartKeepsData(t *testing.T, s *Server) {
	dsn, drop, err := s.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	execute(t, s.Kind, dsn, "CREATE TABLE t (a int)", "INSERT INTO t VALUES (41), (42)")
	pid, port := s.PID(), s.Port()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if alive(pid) || s.PID() != 0 {
		t.Errorf("after Kill process %d lives (PID() is %d)", pid, s.PID())
	}
	if _, err := s.askVersion(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Port() != port {
		t.Errorf("port %d after the restart, %d before", s.Port(), port)
	}
	if n := count(t, s.Kind, dsn); n != 2 {
		t.Errorf("%d rows after the crash, want 2", n)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Errorf("restart of a running server: %v", err)
	}
	if err := drop(t.Context()); err != nil {
		t.Error(err)
	}
}

func freezeHoldsAnswersBack(t *testing.T, s *Server) {
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.askVersion(ctx); err == nil {
		t.Error("a frozen server answers")
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.askVersion(t.Context()); err != nil {
		t.Errorf("after Thaw: %v", err)
	}
	if err := s.Freeze(); err != nil { // Kill must cope with it
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func dropEndsSessions(t *testing.T, s *Server) {
	dsn, drop, err := s.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	execute(t, s.Kind, dsn, "CREATE TABLE t (a int)")
	leave := openTransaction(t, s.Kind, dsn)
	defer leave()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := drop(ctx); err != nil {
		t.Error(err)
	}
	if err := drop(ctx); err != nil {
		t.Errorf("the second time: %v", err)
	}
}

// temporaryFilesAreItsOwn: a start deletes the temporary tables that lie in its folder, also those
// of other servers.
func temporaryFilesAreItsOwn(t *testing.T, s *Server) {
	var dir string
	err := s.withMySQL(t.Context(), func(db *sql.DB) error {
		return db.QueryRowContext(t.Context(), "SELECT @@tmpdir").Scan(&dir)
	})
	if err == nil {
		err = sameFolder(dir, filepath.Join(s.Dir(), tempName))
	}
	if err != nil {
		t.Errorf("@@tmpdir is %s: %v", dir, err)
	}
}

func TestServersAtOnceHaveTheirOwnPorts(t *testing.T) {
	t.Parallel()
	bin, err := findBinaries(t.Context(), startable(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	servers := make([]*Server, 2)
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() {
			var err error
			if servers[i], err = startLocal(t.Context(), bin, i == 1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, s := range servers {
		if s != nil {
			defer s.Close()
		}
	}
	if t.Failed() {
		return
	}
	a, b := servers[0].Port(), servers[1].Port()
	if a == b || a < 20000 || a >= 32768 || b < 20000 || b >= 32768 {
		t.Errorf("ports %d and %d: want two different ones in [20000, 32768)", a, b)
	}
	if servers[0].Dir() == servers[1].Dir() {
		t.Errorf("both use %s", servers[0].Dir())
	}
}

func takenPort(t *testing.T, s *Server) {
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := s.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), errPortTaken.Error()) {
		t.Errorf("restart on a taken port: %v, want %v", err, errPortTaken)
	}
}

func failedStart(t *testing.T, s *Server) {
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, victim := range []string{
		"PG_VERSION", "ibdata1", "aria_log_control", // Postgres, MariaDB, MySQL
	} {
		path := filepath.Join(s.Dir(), dataName, victim)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := os.WriteFile(path, []byte("broken\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Restart(t.Context())
	if err == nil {
		t.Fatal("started on broken data")
	}
	if !strings.Contains(err.Error(), "log ends with:\n") || len(err.Error()) < 100 {
		t.Errorf("the error lacks the log: %v", err)
	}
}

func open(t *testing.T, kind Kind, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func execute(t *testing.T, kind Kind, dsn string, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		var err error
		if kind == Postgres {
			_, err = connect(t, dsn).Exec(t.Context(), statement)
		} else {
			_, err = open(t, kind, dsn).ExecContext(t.Context(), statement)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func count(t *testing.T, kind Kind, dsn string) (n int) {
	t.Helper()
	const query = "SELECT count(*) FROM t"
	var err error
	if kind == Postgres {
		err = connect(t, dsn).QueryRow(t.Context(), query).Scan(&n)
	} else {
		err = open(t, kind, dsn).QueryRowContext(t.Context(), query).Scan(&n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// openTransaction leaves one open that has locked table t.
func openTransaction(t *testing.T, kind Kind, dsn string) (leave func()) {
	t.Helper()
	const insert = "INSERT INTO t VALUES (1)"
	if kind == Postgres {
		tx, err := connect(t, dsn).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), insert); err != nil {
			t.Fatal(err)
		}
		return func() { _ = tx.Rollback(context.Background()) }
	}
	tx, err := open(t, kind, dsn).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}
