package devdb

import (
	"context"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// Program is a server in front of a Postgres, such as a pooler.
type Program struct {
	Name string
	Path string // of its binary

	// Configure returns what the program reads, by the names of files in its folder, and its
	// arguments.
	Configure func(dir string, port int) (files map[string]string, args []string)

	// DSN leads to the database through the program.
	DSN func(port int) string
}

// StartProgram starts a program, and returns when the database answers through it.
func StartProgram(ctx context.Context, p Program) (*Server, error) {
	l := &local{bin: &binaries{kind: Kind(p.Name), daemon: p.Path}, engine: programEngine{Program: p}}
	return l.launch(ctx, p.Name, filepath.Dir(p.Path))
}

type programEngine struct {
	disposable
	Program
}

func (programEngine) initialize(context.Context, *local) error { return nil }

// args writes the configuration, which has the port. If that fails, the program says what it lacks.
func (e programEngine) args(l *local) []string {
	files, args := e.Configure(l.dir.path, l.port)
	for name, text := range files {
		path := l.dir.join(name)
		_ = os.WriteFile(path, []byte(text), 0o600)
		_ = giveToServer(path)
	}
	return args
}

func (e programEngine) adminDSN(l *local) string { return e.DSN(l.port) }

func (programEngine) ready(ctx context.Context, _ *local, s *Server) error {
	return s.withPostgres(ctx, func(c *pgx.Conn) error { return c.Ping(ctx) })
}
