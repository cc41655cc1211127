// Command withdb runs another command once for each MySQL-family server that is found, beside a
// Postgres: each with a migrated database, whose addresses it finds in its environment as
// DBLOCK_VET_POSTGRES and DBLOCK_VET_MYSQL. `make verify` has sqlc prepare every query there.
//
//	go run ./internal/withdb COMMAND [ARGUMENT...]
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "withdb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command []string) (err error) {
	if len(command) == 0 {
		return errors.New("usage: withdb COMMAND [ARGUMENT...]")
	}
	postgres, closePostgres, err := start(ctx, devdb.Postgres)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePostgres()) }()
	family := slices.DeleteFunc(devdb.Available(ctx), func(k devdb.Kind) bool { return k == devdb.Postgres })
	if len(family) == 0 {
		return &devdb.NotFoundError{Kind: devdb.MariaDB}
	}
	for _, kind := range family {
		if err := beside(ctx, postgres, kind, command); err != nil {
			return fmt.Errorf("%s on %s: %w", command[0], kind, err)
		}
	}
	return nil
}

// beside runs the command on Postgres and one server of the MySQL family.
func beside(ctx context.Context, postgres string, kind devdb.Kind, command []string) (err error) {
	dsn, closeServer, err := start(ctx, kind)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeServer()) }()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = append(os.Environ(), "DBLOCK_VET_POSTGRES="+postgres, "DBLOCK_VET_MYSQL="+dsn)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// start starts a server and migrates a database on it.
func start(ctx context.Context, kind devdb.Kind) (dsn string, closeServer func() error, err error) {
	server, err := devdb.Start(ctx, kind, devdb.Options{
		Logf: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	})
	if err != nil {
		return "", nil, err
	}
	dsn, drop, err := server.CreateDatabase(ctx)
	if err == nil {
		err = migrate(ctx, kind, dsn)
	}
	if err != nil {
		return "", nil, errors.Join(err, server.Close())
	}
	return dsn, func() error {
		return errors.Join(drop(context.WithoutCancel(ctx)), server.Close())
	}, nil
}

func migrate(ctx context.Context, kind devdb.Kind, dsn string) error {
	if kind == devdb.Postgres {
		pool, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return err
		}
		defer pool.Close()
		_, err = migrations.Up(ctx, pool, migrations.Options{})
		return err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = migrations.Up(ctx, db, migrations.Options{})
	return err
}
