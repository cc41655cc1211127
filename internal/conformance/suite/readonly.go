package suite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// ReadOnlyServer is a MySQL or MariaDB server of its own that becomes read-only and back.
type ReadOnlyServer struct {
	kind devdb.Kind
	DSN  string // of a user that may not write while it is read-only
	DB   *sql.DB
}

func NewReadOnlyServer(t *testing.T, kind devdb.Kind) *ReadOnlyServer {
	t.Helper()
	server, dsn, db := ServerOfItsOwn(t, kind)
	if server == nil {
		return nil
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	s := &ReadOnlyServer{kind: kind, DB: db}
	s.exec(t, "CREATE USER app IDENTIFIED BY 'app'")
	s.exec(t, "GRANT ALL ON "+cfg.DBName+".* TO app")
	cfg.User, cfg.Passwd = "app", "app"
	s.DSN = cfg.FormatDSN()
	return s
}

func (s *ReadOnlyServer) exec(t *testing.T, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.DB.ExecContext(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// Become waits for the commits and the statements under way, as each server does.
func (s *ReadOnlyServer) Become(t *testing.T, readOnly bool) {
	t.Helper()
	switch {
	case !readOnly:
		s.exec(t, "SET GLOBAL read_only = OFF")
	case s.kind == devdb.MySQL:
		s.exec(t, "SET GLOBAL super_read_only = ON")
	default:
		s.exec(t, "SET GLOBAL read_only = ON")
	}
}

// SaysReadOnly fails unless err says that nothing was written to what, why, and what to do.
func SaysReadOnly(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Errorf("%s: %v, want dblock.ErrUnavailable", what, err)
		return
	}
	for _, part := range []string{what, "read-only: connect to the primary"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}
