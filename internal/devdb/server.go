package devdb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a running server.
type Server struct {
	Kind    Kind
	Version string // for example "15.18"
	Source  string // where it came from: a binary's place, an environment variable, an image

	admin string       // DSN of a user that may create databases
	local *local       // nil for a server that we did not start
	stop  func() error // for a server that a caller has started for us; may be nil

	mu   sync.Mutex
	idle []*pgx.Conn // of the admin's, which nothing uses: for copies of databases
}

func (s *Server) describe() string {
	line := fmt.Sprintf("%s %s from %s", s.Kind, s.Version, s.Source)
	if s.local == nil {
		return line
	}
	mode := "fast"
	if s.local.durable {
		mode = "durable"
	}
	return fmt.Sprintf("%s (%s), port %d", line, mode, s.local.port)
}

// AdminDSN is the connection string of a user that may create databases and see every session.
func (s *Server) AdminDSN() string { return s.admin }

func (s *Server) checkDSN() (err error) {
	if s.Kind == Postgres {
		_, err = ParsePostgres(s.admin)
	} else {
		_, err = ParseMySQL(s.admin)
	}
	return err
}

func (s *Server) askVersion(ctx context.Context) (serverVersion, error) {
	if s.Kind != MariaDB && s.Kind != MySQL { // or a program in front of a Postgres
		return s.askPostgresVersion(ctx)
	}
	return s.askMySQLVersion(ctx)
}

// CreateDatabase makes an empty database with a random name. drop removes it and ends the sessions
// that are still in it.
func (s *Server) CreateDatabase(ctx context.Context) (dsn string, drop func(context.Context) error, err error) {
	name, err := newName()
	if err != nil {
		return "", nil, err
	}
	if s.Kind == Postgres {
		// template1 can't be copied while a session is connected to it.
		return s.createPostgres(ctx, name, "template0", s.execPostgres)
	}
	return s.createMySQL(ctx, name)
}

// CopyDatabase makes a database with a random name and everything that the database of dsn holds.
// It works on Postgres only, and no session may be connected to the original.
func (s *Server) CopyDatabase(
	ctx context.Context, dsn string,
) (copied string, drop func(context.Context) error, err error) {
	if s.Kind != Postgres {
		return "", nil, fmt.Errorf("devdb: %s can't copy databases", s.Kind)
	}
	name, err := newName()
	if err != nil {
		return "", nil, err
	}
	config, err := ParsePostgres(dsn)
	if err != nil {
		return "", nil, err
	}
	return s.createPostgres(ctx, name, config.ConnConfig.Database, s.execOnKept)
}

func newName() (string, error) {
	b := make([]byte, 8)
	_, err := rand.Read(b)
	return "dblock_" + hex.EncodeToString(b), err
}

// Close stops the server if Start started it, and removes its folder. A server that was given by a
// DSN keeps running. Closing twice is safe.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for conn := s.takeIdle(); conn != nil; conn = s.takeIdle() {
		_ = conn.Close(ctx)
	}
	if s.local != nil {
		return s.local.close()
	}
	if stop := s.stop; stop != nil {
		s.stop = nil
		return stop()
	}
	return nil
}

// Kill ends the server's processes with kill -9 and leaves its data as it lies, as a crash does.
func (s *Server) Kill() error {
	if s.local == nil {
		return s.notOurs("kill")
	}
	return s.local.kill()
}

// Restart starts the server again on the same port and data, after Kill or while it runs (then it
// is killed first). Databases, users and passwords are what they were.
func (s *Server) Restart(ctx context.Context) error {
	if s.local == nil {
		return s.notOurs("restart")
	}
	if err := s.local.kill(); err != nil {
		return err
	}
	return s.local.run(ctx, s)
}

// Freeze stops the server's processes where they are, as a hung machine does: connections stay
// open and nothing answers any more when Freeze returns. Thaw lets it go on.
func (s *Server) Freeze() error {
	if s.local == nil {
		return s.notOurs("freeze")
	}
	return s.local.withRunning(freezeTree)
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw() error {
	if s.local == nil {
		return s.notOurs("thaw")
	}
	return s.local.withRunning(func(pid int) error {
		thawTree(pid)
		return nil
	})
}

// PID is the process id of the server; 0 when it is not ours or does not run.
func (s *Server) PID() int {
	if s.local == nil {
		return 0
	}
	s.local.mu.Lock()
	defer s.local.mu.Unlock()
	if s.local.proc == nil {
		return 0
	}
	return s.local.proc.pid
}

// Port is the TCP port on 127.0.0.1; 0 when the server is not ours.
func (s *Server) Port() int {
	if s.local == nil {
		return 0
	}
	return s.local.port
}

// Dir is the server's folder, with its data and its log; "" when the server is not ours.
func (s *Server) Dir() string {
	if s.local == nil {
		return ""
	}
	return s.local.dir.path
}

func (s *Server) notOurs(verb string) error {
	return fmt.Errorf("devdb: can't %s the %s server from %s: it was not started here", verb, s.Kind, s.Source)
}
