package migrations

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// ErrPooler: a pooler such as PgBouncer stands between this process and Postgres. Nothing was
// written.
var ErrPooler = errors.New("dblock: a connection pooler stands before the server, " +
	"and the lock that keeps two migrations apart needs a session of its own: migrate on a direct connection")

// What servers answer where a table is missing or exists.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
// https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
const (
	pgUniqueViolation = "23505" // in a catalog
	pgDuplicateSchema = "42P06"
	pgDuplicateTable  = "42P07"
	myTableExists     = 1050
	myNoSuchTable     = 1146
)

// firstContact sorts the errors from before anything was asked. A server that answers, and be it
// with a refusal of the password, is not unavailable.
func firstContact(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return fmt.Errorf("dblock: connecting: %w", err)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connect) || errors.As(err, &network) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) {
		return fmt.Errorf("%w: %w", dblock.ErrUnavailable, brief(err))
	}
	return fmt.Errorf("dblock: connecting: %w", err)
}

// brief drops pgx's repetition: it tries one address with and without TLS, and reports both.
func brief(err error) error {
	var connect *pgconn.ConnectError
	var dial *net.OpError
	if !errors.As(err, &connect) || !errors.As(err, &dial) {
		return err
	}
	for _, other := range connect.Config.Fallbacks {
		if other.Host != connect.Config.Host || other.Port != connect.Config.Port {
			return err
		}
	}
	return dial
}

// explain adds what a caller can act on, and what was being done.
func explain(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if !strings.HasPrefix(err.Error(), "dblock: ") {
		err = fmt.Errorf("dblock: %s: %w", doing, err)
	}
	if ended := ctxerr.Of(ctx); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", err, ended)
	}
	if public := sqlerr.Public(classOf(err)); public != nil && !errors.Is(err, public) {
		err = fmt.Errorf("%w: %w", public, err)
	}
	return err
}

// classOf returns the class of what a server reports of a statement: Unclassified if a part of a
// migration may stand, or a table is missing.
func classOf(err error) sqlerr.Class {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	is := sqlerr.Unclassified
	if errors.As(err, &pg) {
		is = sqlerr.OfState(pg.Code, false)
	} else if errors.As(err, &my) {
		is = sqlerr.OfNumber(my.Number, string(my.SQLState[:]), false)
	}
	if is == sqlerr.Unresolved {
		return sqlerr.Unclassified
	}
	return is.OfHost()
}

// createdMeanwhile reports that another session has created what was missing.
func createdMeanwhile(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	return errors.As(err, &pg) && (pg.Code == pgUniqueViolation || pg.Code == pgDuplicateSchema || pg.Code == pgDuplicateTable) ||
		errors.As(err, &my) && my.Number == myTableExists
}

func noSuchTable(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && my.Number == myNoSuchTable
}
