package migrations_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/pressly/goose/v3/lock"

	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/migrations"
)

// Eight processes of a service start at once, and each of them migrates. The test binary plays all
// of them: what a racer needs to know is in its environment.
const (
	racers     = 8
	envRacer   = "DBLOCK_TEST_RACER" // the engine
	envDSN     = "DBLOCK_TEST_RACER_DSN"
	envBarrier = "DBLOCK_TEST_RACER_BARRIER" // where the racers wait for each other
	envNoLock  = "DBLOCK_TEST_RACER_NO_LOCK" // the control
)

func racer() int {
	engine := migrations.Engine(os.Getenv(envRacer))
	err := race(context.Background(), engine, os.Getenv(envDSN), func() error { return await(os.Getenv(envBarrier)) })
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func race(ctx context.Context, engine migrations.Engine, dsn string, barrier func() error) error {
	if os.Getenv(envNoLock) != "" {
		return raceWithoutLock(ctx, engine, dsn, barrier)
	}
	db, err := openDB(engine, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	if err := barrier(); err != nil {
		return err
	}
	_, err = migrations.Up(ctx, db, migrations.Options{})
	return err
}

// raceWithoutLock waits for the others at the worst moment: each has seen that there is no table,
// and is about to create it.
func raceWithoutLock(ctx context.Context, engine migrations.Engine, dsn string, barrier func() error) error {
	db, err := openThrough(engine, dsn, func(conn net.Conn) net.Conn { return creating{conn, barrier} })
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = migrations.UpWithLocker(ctx, db, noLock{})
	return err
}

type creating struct {
	net.Conn
	barrier func() error
}

func (c creating) Write(b []byte) (int, error) {
	create := bytes.Contains(b, []byte("CREATE TABLE")) && !bytes.Contains(b, []byte("SHOW CREATE TABLE"))
	if create && bytes.Contains(b, []byte(schema.VersionTable)) {
		if err := c.barrier(); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// noLock excludes no process.
type noLock struct{}

var _ lock.SessionLocker = noLock{}

func (noLock) SessionLock(context.Context, *sql.Conn) error   { return nil }
func (noLock) SessionUnlock(context.Context, *sql.Conn) error { return nil }

// await blocks until the barrier has seen all racers.
func await(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = bufio.NewReader(conn).ReadString('\n')
	return err
}

// openBarrier lets go of all racers when the last one has come.
func openBarrier(l net.Listener) {
	var waiting []net.Conn
	for range racers {
		conn, err := l.Accept()
		if err != nil {
			break // the test has ended
		}
		waiting = append(waiting, conn)
	}
	for _, conn := range waiting {
		_, _ = io.WriteString(conn, "go\n") // one that has died is seen by its exit status
		_ = conn.Close()
	}
}

// runRacers returns what the racers that failed have said.
func (e env) runRacers(extra ...string) (failures []string) {
	e.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	e.must(err)
	go openBarrier(l)
	defer func() { _ = l.Close() }()
	self, err := os.Executable()
	e.must(err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range racers {
		wg.Go(func() {
			cmd := exec.CommandContext(e.Context(), self)
			cmd.Env = append(os.Environ(), envRacer+"="+string(e.engine), envDSN+"="+e.dsn, envBarrier+"="+l.Addr().String())
			cmd.Env = append(cmd.Env, extra...)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, fmt.Sprintf("%v: %s", err, &out))
			}
		})
	}
	wg.Wait()
	return failures
}

func TestEightProcessesMigrateAtOnce(t *testing.T) {
	each(t, func(e env) {
		if failures := e.runRacers(); len(failures) > 0 {
			t.Errorf("%d of %d failed: %v", len(failures), racers, failures)
		}
		e.wantTables("", all())
		e.wantVersions(schema.VersionTable, everyVersion())
		e.wantApplied(migrations.Options{})
	})
}

// The control: without the lock processes fail in the same race, but for those that come after the
// winner. On a busy machine all may: then there is another race.
func TestWithoutTheLockTheRaceIsLost(t *testing.T) {
	each(t, func(e env) {
		for range 20 {
			if len(e.runRacers(envNoLock+"=1")) > 0 {
				return
			}
			_, err := migrations.DownTo(t.Context(), e.db, 0, migrations.Options{})
			e.must(err)
		}
		t.Error("none failed")
	})
}
