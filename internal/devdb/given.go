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
	k, err := mysqlDSNKind(ctx)
	if err != nil {
		return nil, err
	}
	if k != kind {
		return nil, nil
	}
	return Attach(ctx, kind, mysqlDSN(), envMySQLDSN, nil)
}

// mysqlDSNKind asks the server at DBLOCK_MYSQL_DSN what it is; "" when the variable is not set.
// With an error it returns MySQL, the kind that the variable's name promises.
func mysqlDSNKind(ctx context.Context) (Kind, error) {
	if mysqlDSN() == "" {
		return "", nil
	}
	s, err := Attach(ctx, MySQL, mysqlDSN(), envMySQLDSN, nil)
	if err != nil {
		var other *kindError
		if errors.As(err, &other) {
			return other.have, nil
		}
		return MySQL, err
	}
	return s.Kind, nil
}

// Attach makes a Server of one that runs already and that Close must not stop, other than by the
// stop function given (nil: leave it running). source says in errors and in the log where it came
// from. A server of another kind is refused.
func Attach(ctx context.Context, kind Kind, dsn, source string, stop func() error) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, givenTimeout)
	defer cancel()
	s := &Server{Kind: kind, Source: source, admin: dsn, stop: stop}
	if err := s.checkDSN(); err != nil {
		var d *DSNError
		if errors.As(err, &d) {
			return nil, &DSNError{Var: source, Err: d.Err}
		}
		return nil, err
	}
	version, err := s.askVersion(ctx)
	if err != nil {
		return nil, &DSNError{Var: source, Err: fmt.Errorf("the %s server there does not answer: %w", kind, err)}
	}
	s.Version = version.number
	if version.kind != kind {
		return nil, &DSNError{Var: source, Err: &kindError{want: kind, have: version.kind}}
	}
	return s, nil
}

type kindError struct{ want, have Kind }

func (e *kindError) Error() string {
	return fmt.Sprintf("the server there is %s, not %s", e.have, e.want)
}

type serverVersion struct {
	kind   Kind
	number string
}

// mysqlVersion reads what VERSION() or `mysqld --version` said: MariaDB names itself, MySQL doesn't.
func mysqlVersion(text string) serverVersion {
	number := text
	if i := strings.IndexAny(text, "-+ "); i > 0 {
		number = text[:i]
	}
	if strings.Contains(text, "MariaDB") {
		// Old clients were told 5.5.5-10.x; the real number follows.
		if rest, ok := strings.CutPrefix(text, "5.5.5-"); ok {
			return mysqlVersion(rest)
		}
		return serverVersion{MariaDB, number}
	}
	return serverVersion{MySQL, number}
}
