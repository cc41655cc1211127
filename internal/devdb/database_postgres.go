package devdb

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

func (s *Server) askPostgresVersion(ctx context.Context) (serverVersion, error) {
	var text string
	err := s.withPostgres(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SHOW server_version").Scan(&text)
	})
	number, _, _ := strings.Cut(text, " ") // "15.18 (Debian 15.18-0+deb12u1)"
	return serverVersion{Postgres, number}, err
}

func (s *Server) withPostgres(ctx context.Context, fn func(*pgx.Conn) error) error {
	c, err := ParsePostgres(s.admin)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, c.ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return fn(conn)
}

func (s *Server) createPostgres(
	ctx context.Context, name, template string, exec func(context.Context, string) error,
) (string, func(context.Context) error, error) {
	if err := exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template+s.copyStrategy()); err != nil {
		return "", nil, fmt.Errorf("create a database on the postgres server from %s: %w", s.Source, err)
	}
	drop := func(ctx context.Context) error {
		if err := exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
		return nil
	}
	return postgresWithDatabase(s.admin, name), drop, nil
}

// maxIdle is how many connections are kept for the next databases: a new one costs a process of the
// server's.
const maxIdle = 4

// execPostgres runs a statement on a connection of its own.
func (s *Server) execPostgres(ctx context.Context, sql string) error {
	return s.withPostgres(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, sql)
		return err
	})
}

// execOnKept runs a statement on a connection that is kept for others.
func (s *Server) execOnKept(ctx context.Context, sql string) error {
	conn := s.takeIdle()
	if conn != nil && conn.Ping(ctx) != nil { // the server has been restarted
		_ = conn.Close(ctx)
		conn = nil
	}
	if conn == nil {
		c, err := ParsePostgres(s.admin)
		if err != nil {
			return err
		}
		if conn, err = pgx.ConnectConfig(ctx, c.ConnConfig); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, sql)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || len(s.idle) == maxIdle {
		_ = conn.Close(context.WithoutCancel(ctx))
		return err
	}
	s.idle = append(s.idle, conn)
	return nil
}

// takeIdle is a connection that nothing uses, or nil.
func (s *Server) takeIdle() *pgx.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	if last < 0 {
		return nil
	}
	conn := s.idle[last]
	s.idle = s.idle[:last]
	return conn
}

// copyStrategy has a server of ours copy files, as all did before Postgres 15. The other way writes
// each page into the log, which takes twice the processor time. On a server that was given the
// checkpoint of a copy may take long.
func (s *Server) copyStrategy() string {
	major, _, _ := strings.Cut(s.Version, ".")
	if n, err := strconv.Atoi(major); s.local == nil || err != nil || n < 15 {
		return ""
	}
	return " STRATEGY FILE_COPY"
}
