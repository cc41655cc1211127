package lock

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

func TestMain(m *testing.M) {
	quorumMain()
	testdb.Main(m)
}

// site is a database that a node's leases lie in.
type site struct {
	kind   devdb.Kind
	dsn    string
	server *devdb.Server
}

// leases opens the leases of a process, with a pool of their own.
func (s site) leases(t *testing.T) Leases {
	t.Helper()
	open := openOnMySQL
	if s.kind == devdb.Postgres {
		open = openOnPostgres
	}
	l, end, err := open(t.Context(), s.dsn)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = l.Close(ctx)
		end()
	})
	return l
}

func openOnPostgres(ctx context.Context, dsn string) (Leases, func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	return openOnPool(ctx, cfg)
}

func openOnPool(ctx context.Context, cfg *pgxpool.Config) (Leases, func(), error) {
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	l, err := pglock.NewLease(ctx, pool, pglock.LeaseOptions{TTL: quorumTTL})
	return l, pool.Close, err
}

func openOnMySQL(ctx context.Context, dsn string) (Leases, func(), error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	return openOnConfig(ctx, cfg)
}

func openOnConfig(ctx context.Context, cfg *mysql.Config) (Leases, func(), error) {
	cfg.Logger = &mysql.NopLogger{} // servers are killed on purpose
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(8)
	l, err := mysqllock.NewLease(ctx, db, mysqllock.LeaseOptions{TTL: quorumTTL})
	return l, func() { _ = db.Close() }, err
}

// sitesOfTheirOwn are three durable servers, of as many engines as there are; nil where there is none to kill.
func sitesOfTheirOwn(t *testing.T) (sites []site) {
	t.Helper()
	kinds := devdb.Available(t.Context())
	for i := 0; len(sites) < 3 && len(kinds) > 0; i++ {
		kind := kinds[i%len(kinds)]
		server, dsn, _ := suite.ServerOfItsOwn(t, kind)
		if server == nil {
			kinds = slices.DeleteFunc(kinds, func(k devdb.Kind) bool { return k == kind })
			continue
		}
		t.Logf("node %d: %s %s", len(sites), kind, server.Version)
		sites = append(sites, site{kind, dsn, server})
	}
	return sites
}

// sharedSites are three databases on the servers that tests share.
func sharedSites(t *testing.T) (sites []site) {
	t.Helper()
	for i := range 3 {
		kinds := testdb.Engines()
		s := site{kind: kinds[i%len(kinds)]}
		s.dsn = testdb.Migrated(t, s.kind)
		sites = append(sites, s)
	}
	return sites
}

func quorumOf(t *testing.T, nodes []Leases) *dblock.Quorum {
	t.Helper()
	lockers := make([]dblock.Locker, len(nodes))
	for i, n := range nodes {
		lockers[i] = n
	}
	q, err := dblock.NewQuorum(lockers, dblock.QuorumOptions{NodeTimeout: quorumTTL / 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := q.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return q
}
