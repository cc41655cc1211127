package faultmatrix

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/migrations"
)

// env is where one run takes place: a database, its workers, and the network between.
type env struct {
	kind    devdb.Kind
	server  *devdb.Server
	replica *devdb.Server // nil: the fault needs none
	dsn     string        // of the administrator
	admin   *sql.DB       // past the network, as a user that may end sessions
	app     string        // the workers' user
	link    *link
	wire    *faultconn.Proxy // before the link, where answers are replaced

	dir  string
	cfg  config
	log  *opLog
	drop func(context.Context) error

	program  string  // of the other processes; empty: this one's
	worker   *worker // of this process
	children []*child
	started  int
}

// newEnv makes a database with dblock's tables and a network to it.
func newEnv(ctx context.Context, s servers, f Fault) (e *env, err error) {
	e = &env{kind: s.primary.Kind, server: s.primary, replica: s.replica}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.dsn, e.drop, err = e.server.CreateDatabase(ctx); err != nil {
		return e, err
	}
	if e.dir, err = os.MkdirTemp("", "dblock-matrix-"); err != nil {
		return e, err
	}
	if e.log, err = openLog(filepath.Join(e.dir, "supervisor"), -1); err != nil {
		return e, err
	}
	if e.admin, err = openAdmin(e.kind, e.dsn); err != nil {
		return e, err
	}
	app, addr, err := e.makeUser(ctx, e.dsn)
	if err != nil {
		return e, fmt.Errorf("the workers' user: %w", err)
	}
	if err := e.makeTables(ctx, app); err != nil {
		return e, err
	}
	if e.link, err = newLink(addr); err != nil {
		return e, err
	}
	through := e.link.addr
	if f.Answers != nil {
		serve := faultconn.ProxyMySQL
		if e.kind == devdb.Postgres {
			serve = faultconn.ProxyPostgres
		}
		if e.wire, err = serve(e.link.addr); err != nil {
			return e, err
		}
		through = e.wire.Addr()
	}
	e.cfg = config{Kind: e.kind, DSN: strings.Replace(app, addr, through, 1)}
	return e, nil
}

func openAdmin(kind devdb.Kind, dsn string) (*sql.DB, error) {
	var db *sql.DB
	if kind == devdb.Postgres {
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		db = stdlib.OpenDB(*cfg)
	} else {
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		cfg.Logger = &mysql.NopLogger{}
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		db = sql.OpenDB(connector)
	}
	db.SetMaxIdleConns(0) // one that was idle may be dead
	return db, nil
}

// makeUser makes a user that owns the database and nothing else. It returns the user's DSN and the
// server's address.
func (e *env) makeUser(ctx context.Context, dsn string) (app, addr string, err error) {
	b := make([]byte, 6)
	if _, err := rand.Read(b); err != nil {
		return "", "", err
	}
	e.app = "app_" + hex.EncodeToString(b)
	if e.kind == devdb.Postgres {
		u, err := url.Parse(dsn)
		if err != nil {
			return "", "", err
		}
		err = e.exec(ctx, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", e.app, e.app),
			fmt.Sprintf("ALTER DATABASE %s OWNER TO %s", strings.TrimPrefix(u.Path, "/"), e.app))
		u.User = url.UserPassword(e.app, e.app)
		return u.String(), u.Host, err
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", "", err
	}
	err = e.exec(ctx, fmt.Sprintf("CREATE USER '%s'@'127.0.0.1' IDENTIFIED BY '%s'", e.app, e.app),
		fmt.Sprintf("GRANT ALL ON `%s`.* TO '%s'@'127.0.0.1'", cfg.DBName, e.app))
	cfg.User, cfg.Passwd = e.app, e.app
	return cfg.FormatDSN(), cfg.Addr, err
}

func (e *env) makeTables(ctx context.Context, app string) error {
	db, err := openAdmin(e.kind, app)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(ctx, db, migrations.Options{}); err != nil {
		return err
	}
	statements := []string{
		"CREATE TABLE matrix_value (k varchar(64) NOT NULL PRIMARY KEY, v bigint NOT NULL)",
		"CREATE TABLE matrix_write (id varchar(64) NOT NULL PRIMARY KEY)",
		"CREATE TABLE matrix_effect (job varchar(64) NOT NULL)",
		"INSERT INTO matrix_value VALUES ('" + controlKey + "', 0)",
	}
	for _, key := range leaseKeys {
		statements = append(statements, fmt.Sprintf("INSERT INTO matrix_value VALUES ('%s', 0)", key))
	}
	for sku, units := range map[string]int{plentySKU: plenty, scarceSKU: scarce, controlSKU: plenty} {
		statements = append(statements, fmt.Sprintf("INSERT INTO dblock_stock (sku, bucket, available) VALUES ('%s', 0, %d)", sku, units),
			fmt.Sprintf("INSERT INTO dblock_adjustment (adjustment_id, sku, delta) VALUES ('%s', '%s', %d)", sku, sku, units))
	}
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// exec runs statements as the administrator.
func (e *env) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := e.admin.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// close ends and removes all that is left.
func (e *env) close() error {
	for _, c := range e.children {
		c.kill()
	}
	if e.wire != nil {
		e.wire.Close()
	}
	if e.link != nil {
		e.link.close()
	}
	var errs []error
	if e.log != nil {
		errs = append(errs, e.log.file.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if e.drop != nil {
		errs = append(errs, e.drop(ctx))
	}
	if e.admin != nil {
		errs = append(errs, e.admin.Close())
	}
	if e.dir != "" {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	return errors.Join(errs...)
}
