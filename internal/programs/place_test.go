package programs

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/queue"
)

func eachEngine(t *testing.T, test func(*testing.T, *place)) {
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) { test(t, openPlace(t, kind)) })
	}
}

// place is a database for programs, one after the other.
type place struct {
	kind devdb.Kind
	dsn  string
	db   *sql.DB

	lease, session, quorum dblock.Locker // those of the checker
	jobs                   *queue.Queue
	store                  *inventory.Store
}

var runs atomic.Int64

func openPlace(t *testing.T, kind devdb.Kind) *place {
	t.Helper()
	p := &place{kind: kind, dsn: testdb.Migrated(t, kind)}
	p.db = connect(t, kind, p.dsn)
	s, err := openServer(t.Context(), kind, p.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	if p.lease, err = s.lease(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	p.closeLater(t, p.lease)
	if p.session, err = s.session(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	p.closeLater(t, p.session)
	if p.quorum, err = openQuorum(t.Context(), s, func(l dblock.Locker) { p.closeLater(t, l) }); err != nil {
		t.Fatal(err)
	}
	p.closeLater(t, p.quorum)
	if p.jobs, err = openQueueOn(t.Context(), s, queue.Options{}); err != nil {
		t.Fatal(err)
	}
	p.closeLater(t, p.jobs)
	if p.store, err = openStore(t.Context(), s, storeOptions{}); err != nil {
		t.Fatal(err)
	}
	p.closeLater(t, p.store)
	p.exec(t, "CREATE TABLE tally (id INT PRIMARY KEY, n BIGINT NOT NULL)")
	p.exec(t, "CREATE TABLE effect (task VARCHAR(100) NOT NULL)")
	return p
}

func (p *place) closeLater(t *testing.T, l interface{ Close(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

func connect(t *testing.T, kind devdb.Kind, dsn string) *sql.DB {
	t.Helper()
	open := func() (*sql.DB, error) { return sql.Open("pgx", dsn) }
	if kind != devdb.Postgres {
		open = func() (*sql.DB, error) { return openMySQL(dsn) }
	}
	db, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (p *place) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := p.db.ExecContext(context.Background(), statement); err != nil {
		t.Fatal(err)
	}
}
