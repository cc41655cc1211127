package devdb

import (
	"context"
	"database/sql"
	"fmt"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/mysql"
)

func (s *Server) askMySQLVersion(ctx context.Context) (serverVersion, error) {
	var text string
	err := s.withMySQL(ctx, func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&text)
	})
	return mysqlVersion(text), err
}

func (s *Server) withMySQL(ctx context.Context, fn func(*sql.DB) error) error {
	c, err := ParseMySQL(s.admin)
	if err != nil {
		return err
	}
	c.Logger = &mysqldriver.NopLogger{} // refused connections are expected while a server starts
	connector, err := mysqldriver.NewConnector(c)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	return fn(db)
}

func (s *Server) createMySQL(ctx context.Context, name string) (string, func(context.Context) error, error) {
	err := s.withMySQL(ctx, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE DATABASE "+name)
		return err
	})
	if err != nil {
		return "", nil, fmt.Errorf("create a database on the %s server from %s: %w", s.Kind, s.Source, err)
	}
	drop := func(ctx context.Context) error {
		if err := s.withMySQL(ctx, func(db *sql.DB) error { return dropMySQL(ctx, db, name) }); err != nil {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
		return nil
	}
	c, err := ParseMySQL(s.admin)
	if err != nil {
		return "", nil, err
	}
	return mysqlWithDatabase(c, name), drop, nil
}

// dropMySQL first ends the sessions in the database: an open transaction there would make DROP
// wait for its metadata lock.
func dropMySQL(ctx context.Context, db *sql.DB, name string) error {
	processes, err := mysql.Processes(ctx, db)
	if err != nil {
		return err
	}
	for _, p := range processes {
		if p.Database != name {
			continue
		}
		// A session that ended by itself in the meantime is no error.
		_, _ = db.ExecContext(ctx, fmt.Sprintf("KILL %d", p.ID))
	}
	_, err = db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name)
	return err
}
