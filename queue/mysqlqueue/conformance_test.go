package mysqlqueue_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"

	queuesuite "github.com/dblock-go/dblock/internal/conformance/queue"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

func on(kind devdb.Kind) queuesuite.Queue {
	return queuesuite.Queue{Kind: kind, Open: open, OpenOn: openOn, EnqueueTx: mysqlqueue.EnqueueTx, HandleTx: handleTx}
}

func open(ctx context.Context, dsn string, o queue.Options) (*queue.Queue, func(), error) {
	return openOn(ctx, dsn, nil, o)
}

func openOn(ctx context.Context, dsn string, dialer *faultconn.Dialer, o queue.Options) (*queue.Queue, func(), error) {
	from, err := connector(dsn, dialer)
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(from)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	q, err := mysqlqueue.New(ctx, db, o)
	if err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return q, func() { _ = db.Close() }, nil
}

func connector(dsn string, dialer *faultconn.Dialer) (driver.Connector, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if dialer != nil {
		cfg.DialFunc = dialer.DialContext
		cfg.Logger = &mysql.NopLogger{} // connections are cut on purpose
	}
	return mysql.NewConnector(cfg)
}

func TestMain(m *testing.M) {
	on("").Main()
	testdb.Main(m, devdb.MariaDB, devdb.MySQL)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) { on(kind).Run(t) })
	}
}

// TestFaults has no other tests beside it.
func TestFaults(t *testing.T) {
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) { on(kind).RunFaults(t) })
	}
}

// family is the servers under test that speak MySQL's protocol: usually one.
func family() []devdb.Kind {
	return slices.DeleteFunc(slices.Clone(testdb.Engines()), func(k devdb.Kind) bool { return k == devdb.Postgres })
}
