package answers

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
)

// SessionLocker is goose's.
type SessionLocker = lock.SessionLocker

// Migrations is an engine room whose MigrationLocker is under test.
type Migrations struct {
	Kind   devdb.Kind
	Locker func(name string, timeout time.Duration) (SessionLocker, error)
}

// Run runs the suite. What the locks themselves promise is tested where they are made.
func (m Migrations) Run(t *testing.T) {
	t.Run("OneAtATimeMigrates", m.oneAtATimeMigrates)
	t.Run("ControlMeets", m.controlMeets)
	t.Run("ItsNameExcludes", m.itsNameExcludes)
	t.Run("RefusesWhatMakesNoSense", m.refusesWhatMakesNoSense)
}

const migrators = 4

// race has some processes run the same migration at once, and returns the errors of those that failed.
func (m Migrations) race(t *testing.T, options ...goose.ProviderOption) (failed []error) {
	dsn := testdb.DSN(t, m.Kind)
	dialect := goose.DialectMySQL
	if m.Kind == devdb.Postgres {
		dialect = goose.DialectPostgres
	}
	create := "-- +goose Up\nCREATE TABLE shop (id int PRIMARY KEY);\nINSERT INTO shop VALUES (1);\n"
	files := fstest.MapFS{"00001_shop.sql": {Data: []byte(create)}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range migrators {
		wg.Go(func() {
			db, err := suite.ConnectOn(m.Kind, dsn, &faultconn.Dialer{})
			if err == nil {
				defer func() { _ = db.Close() }()
				err = migrateUp(t.Context(), dialect, db, files, options)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	wg.Wait()
	return failed
}

// migrateUp does first what looks idle: Up looks for the version table before it locks, and makes it there. On MySQL and MariaDB,
// where that is no transaction, others then find it without its first row. GetDBVersion makes it under the lock.
func migrateUp(ctx context.Context, dialect goose.Dialect, db *sql.DB, files fstest.MapFS, options []goose.ProviderOption) error {
	p, err := goose.NewProvider(dialect, db, files, options...)
	if err != nil {
		return err
	}
	if _, err := p.GetDBVersion(ctx); err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

func (m Migrations) oneAtATimeMigrates(t *testing.T) {
	l, err := m.Locker("shop", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if failed := m.race(t, goose.WithSessionLocker(l)); failed != nil {
		t.Errorf("%d of %d failed: %v", len(failed), migrators, errors.Join(failed...))
	}
}

// unlocked lets everybody in, and the first waits there for the second. Those who come later may find nothing to migrate.
type unlocked struct {
	in   atomic.Int32
	both chan struct{}
}

func (u *unlocked) SessionLock(ctx context.Context, _ *sql.Conn) error {
	switch u.in.Add(1) {
	case 1:
		select {
		case <-u.both:
		case <-ctx.Done():
		}
	case 2:
		close(u.both)
	}
	return nil
}

func (*unlocked) SessionUnlock(context.Context, *sql.Conn) error { return nil }

// controlMeets: without the lock two are in at once, where with it nobody would ever come to meet the first.
func (m Migrations) controlMeets(t *testing.T) {
	m.race(t, goose.WithSessionLocker(&unlocked{both: make(chan struct{})})) // that it ends is the proof; who fails then is chance
}

// itsNameExcludes: and a timeout is Busy.
func (m Migrations) itsNameExcludes(t *testing.T) {
	l, err := m.Locker("shop 3", 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	s := newSessions(t, m.Kind, testdb.DSN(t, m.Kind))
	if err := l.SessionLock(t.Context(), s.a); err != nil {
		t.Fatal(err)
	}
	if err := l.SessionLock(t.Context(), s.b); !errors.Is(err, dblock.ErrBusy) {
		t.Errorf("the second got %v, want ErrBusy", err)
	}
	if err := l.SessionUnlock(t.Context(), s.a); err != nil {
		t.Error(err)
	}
	if err := l.SessionLock(t.Context(), s.b); err != nil {
		t.Error(err)
	}
	if err := l.SessionUnlock(t.Context(), s.b); err != nil {
		t.Error(err)
	}
}

func (m Migrations) refusesWhatMakesNoSense(t *testing.T) {
	for _, name := range []string{"", "\xff", "a\x00b", strings.Repeat("n", 256)} {
		if _, err := m.Locker(name, 0); !errors.As(err, new(*dblock.InvalidError)) {
			t.Errorf("the name %.10q: %v", name, err)
		}
	}
	if _, err := m.Locker("shop", -1); !errors.As(err, new(*dblock.InvalidError)) {
		t.Errorf("a negative timeout: %v", err)
	}
}
