package doctor

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/postgres"
)

// unreachable is the report of a server that could not be asked, or not to the end.
func unreachable(engine, target string, err error) Report {
	r := Report{Engine: engine, Target: target}
	var refused *postgres.UnusableError
	if errors.As(err, &refused) { // behind a pooler the command line cannot set another path
		r.add(pathCheck, []Finding{finding(Problem, oneLine(refused), otherPath)})
		return r
	}
	r.add(connection, []Finding{finding(Problem, oneLine(err), remedy(err))})
	return r
}

// refusals are what servers say themselves, by SQLSTATE on Postgres and by number on MySQL and
// MariaDB.
var refusals = map[string]string{
	"28P01": wrongLogin, "28000": wrongLogin, "3D000": noDatabase, "42501": noRights, "53300": tooMany, "57P03": starting, "57014": cutOff,
}

var refusalsMySQL = map[uint16]string{1045: wrongLogin, 1698: wrongLogin, 1044: noRights, 1049: noDatabase, 1040: tooMany, 1130: wrongLogin, 3024: cutOff, 1969: cutOff}

const (
	wrongLogin = "the server refuses this login: check user, password and database of the DSN, and from where the server lets that user in " +
		"(pg_hba.conf; on MySQL and MariaDB the host of the account)"
	noDatabase = "create the database, or correct its name in the DSN"
	noRights   = "the user may not use that database: give it what docs/grants.md lists, or correct the name in the DSN"
	tooMany    = "all its connections are taken: give pools a bound, put a pooler before the server, or raise max_connections"
	starting   = "it starts, recovers or shuts down: try again in a moment"

	cutOff = "the time that this user's statements may take is too short to ask anything: allow a second at least " +
		"(statement_timeout, max_execution_time, max_statement_time)"

	unknownHost = "the host's name is not known here: correct it in the DSN"
	notListened = "nothing listens there: is the server running, are host and port those of the DSN, and does it listen on that address " +
		"(listen_addresses, bind_address)?"
	conforming = "take standard_conforming_strings = off out of the DSN, and out of what ALTER ROLE and ALTER DATABASE have set, " +
		"or take default_query_exec_mode=simple_protocol out of the DSN"
	silent = "no answer: is there a firewall, or a server that hangs?"
	log    = "the server's log says more"
)

func remedy(err error) string {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &pg) && refusals[pg.Code] != "":
		return refusals[pg.Code]
	case errors.As(err, &my) && refusalsMySQL[my.Number] != "":
		return refusalsMySQL[my.Number]
	case errors.As(err, &dns):
		return unknownHost
	case strings.Contains(err.Error(), conformingStrings):
		return conforming
	case errors.Is(err, syscall.ECONNREFUSED):
		return notListened
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return silent
	}
	return log
}
