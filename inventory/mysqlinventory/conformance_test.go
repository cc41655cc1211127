package mysqlinventory_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
)

func open(ctx context.Context, dsn string, o inventory.Options) (*inventory.Store, func(), error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	return storeOn(ctx, cfg, o)
}

// storeOn makes a Store with a pool of its own.
func storeOn(ctx context.Context, cfg *mysql.Config, o inventory.Options, more ...mysqlinventory.Option) (*inventory.Store, func(), error) {
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(64)
	db.SetMaxIdleConns(64)
	store, err := mysqlinventory.New(ctx, db, o, more...)
	if err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return store, func() { _ = db.Close() }, nil
}

func TestMain(m *testing.M) {
	testdb.Main(m, devdb.MariaDB, devdb.MySQL)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) { on(kind).Run(t) })
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) { on(kind).RunFaults(t) })
	}
}

// family is the servers under test that speak MySQL's protocol: usually one.
func family() []devdb.Kind {
	return slices.DeleteFunc(slices.Clone(testdb.Engines()), func(k devdb.Kind) bool { return k == devdb.Postgres })
}
