package answers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// SessionLocker is goose's.
type SessionLocker = lock.SessionLocker

// Migrations is a driver's MigrationLocker.
type Migrations struct {
	Kind   devdb.Kind
	Locker func(name string, timeout time.Duration) (SessionLocker, error)
}

// Run runs the suite. What the locks themselves promise is tested where they are made.
func (m Migrations) Run(t *testing.T) {
	t.Run("OneAtATimeMigrates", m.oneAtATimeMigrates)
	t.Run("ControlMeets", m.controlMeets)
	t.Run("RefusesWhatMakesNoSense", m.refusesWhatMakesNoSense)
}

// race has some processes run the same migration at once. It does first what looks idle: Up looks
// for the version table before it locks, and makes it there. On MySQL and MariaDB, without
// transactions, others then find it without its first row. GetDBVersion makes it under the lock.
func (m Migrations) race(t *testing.T, locker SessionLocker) error {
	dsn := testdb.DSN(t, m.Kind)
	dialect := goose.DialectMySQL
	if m.Kind == devdb.Postgres {
		dialect = goose.DialectPostgres
	}
	create := "-- +goose Up\nCREATE TABLE shop (id int PRIMARY KEY);\nINSERT INTO shop VALUES (1);\n"
	files := fstest.MapFS{"00001_shop.sql": {Data: []byte(create)}}
	errs := make([]error, 4)
	pools := make([]*suite.DB, len(errs))
	for i := range pools {
		pools[i] = suite.OpenDB(t, m.Kind, dsn)
	}
	suite.Crowd(len(errs), func(i int) {
		p, err := goose.NewProvider(dialect, pools[i].DB, files, goose.WithSessionLocker(locker))
		if err == nil {
			_, err = p.GetDBVersion(t.Context())
		}
		if err == nil {
			_, err = p.Up(t.Context())
		}
		errs[i] = err
	})
	return errors.Join(errs...)
}

func (m Migrations) oneAtATimeMigrates(t *testing.T) {
	assert.NoError(t, m.race(t, suite.Must(m.Locker("shop", time.Minute))(t)))
}

// unlocked lets all in, and the first waits there for the second. Later ones may find no work.
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

// controlMeets: without the lock two are in at once. That it ends is the proof.
func (m Migrations) controlMeets(t *testing.T) { _ = m.race(t, &unlocked{both: make(chan struct{})}) }

func (m Migrations) refusesWhatMakesNoSense(t *testing.T) {
	for _, name := range []string{"", "\xff", "a\x00b", strings.Repeat("n", 256)} {
		assert.ErrorAs(t, suite.Second(m.Locker(name, 0)), new(*dblock.InvalidError), "%.10q", name)
	}
	assert.ErrorAs(t, suite.Second(m.Locker("shop", -1)), new(*dblock.InvalidError))
}

// RunMigrationAnswers replaces the server's answers while a schema is migrated.
func RunMigrationAnswers(t *testing.T, kind devdb.Kind) {
	Run(t, kind, []User{{"migrations", func(ctx context.Context, x *Trial) error { return useMigrations(ctx, x, kind) }}})
}

var schemas atomic.Int64

func useMigrations(ctx context.Context, x *Trial, kind devdb.Kind) error {
	name := fmt.Sprintf("answers_%d_%d", time.Now().UnixNano(), schemas.Add(1))
	create, drop := "CREATE DATABASE "+name, "DROP DATABASE "+name
	if kind == devdb.Postgres {
		create, drop = "CREATE SCHEMA "+name, "DROP SCHEMA "+name+" CASCADE"
	}
	if _, err := x.DB.ExecContext(ctx, create); err != nil {
		return err
	}
	defer func() { _, _ = x.DB.ExecContext(context.WithoutCancel(ctx), drop) }()
	db, err := suite.ConnectOn(kind, x.DSN, &faultconn.Dialer{})
	if err != nil {
		return err
	}
	defer db.Close()
	o := migrations.Options{Schema: name}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	x.Returned(suite.Second(migrations.Up(bounded, db, o)))
	x.Returned(suite.Second(migrations.Status(bounded, db, o)))
	x.Heal()
	return x.Again(ctx, "migrating", func(ctx context.Context) error {
		if _, err := migrations.Up(ctx, db, o); err != nil {
			return err
		}
		all, err := migrations.Status(ctx, db, o)
		for _, m := range all {
			if !m.Applied {
				err = errors.Join(err, fmt.Errorf("%d is not applied", m.Version))
			}
		}
		return err
	})
}
