package devdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A server that was given and does not answer in this time is reported instead of waited for.
const givenTimeout = 10 * time.Second

// fromDSN gives the server that the environment names, or nil when it names none of this kind.
func fromDSN(ctx context.Context, kind Kind) (*Server, error) {
	if kind == Postgres {
		if postgresURL() == "" {
			return nil, nil
		}
		return Attach(ctx, Postgres, postgresURL(), envPostgresURL, nil)
	}
	s, err := mysqlOfDSN(ctx)
	if err == nil && s != nil && s.Kind != kind {
		return nil, nil
	}
	return s, err
}

// mysqlOfDSN is the server at DBLOCK_MYSQL_DSN; nil when the variable is not set. With an error it
// is of the kind MySQL, which the variable's name promises.
func mysqlOfDSN(ctx context.Context) (*Server, error) {
	if mysqlDSN() == "" {
		return nil, nil
	}
	s := &Server{Kind: MySQL, Source: envMySQLDSN, admin: mysqlDSN()}
	return s, s.attach(ctx)
}

func mysqlDSNKind(ctx context.Context) (Kind, error) {
	s, err := mysqlOfDSN(ctx)
	if s == nil {
		return "", err
	}
	return s.Kind, err
}

// Attach makes a Server of one that runs already and that Close must not stop, other than by the
// stop function given (nil: leave it running). source says in errors and in the log where it came
// from. A server of another kind is refused.
func Attach(ctx context.Context, kind Kind, dsn, source string, stop func() error) (*Server, error) {
	s := &Server{Kind: kind, Source: source, admin: dsn, stop: stop}
	if err := s.attach(ctx); err != nil {
		return nil, err
	}
	if s.Kind != kind {
		return nil, &DSNError{Var: source, Err: fmt.Errorf("the server there is %s, not %s", s.Kind, kind)}
	}
	return s, nil
}

// attach asks the server what it is.
func (s *Server) attach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, givenTimeout)
	defer cancel()
	if err := s.checkDSN(); err != nil {
		var d *DSNError
		if errors.As(err, &d) {
			return &DSNError{Var: s.Source, Err: d.Err}
		}
		return err
	}
	version, err := s.askVersion(ctx)
	if err != nil {
		return &DSNError{Var: s.Source, Err: fmt.Errorf("the %s server there does not answer: %w", s.Kind, err)}
	}
	s.Version, s.Kind = version.number, version.kind
	return nil
}

type serverVersion struct {
	kind   Kind
	number string
}

// mysqlVersion reads what VERSION() or `mysqld --version` said: MariaDB names itself, MySQL
// doesn't.
func mysqlVersion(text string) serverVersion {
	number := text
	if i := strings.IndexAny(text, "-+ "); i > 0 {
		number = text[:i]
	}
	if strings.Contains(text, "MariaDB") {
		// The server sends 5.5.5-10.x for old clients; the real number follows.
		if rest, ok := strings.CutPrefix(text, "5.5.5-"); ok {
			return mysqlVersion(rest)
		}
		return serverVersion{MariaDB, number}
	}
	return serverVersion{MySQL, number}
}
