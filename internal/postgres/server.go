package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Server is what was found. Where Product has no Postgres inside that is known here (see
// Product.Known), only Version, Product, Backend, Pooled and Database are filled.
type Server struct {
	Version  string // the text of version()
	Product  Product
	Database string
	User     string

	// Backend is the process that served the session, as pg_stat_activity calls it. Behind a pooler
	// the next statement may be served by another one.
	Backend int32

	// Pooled: the server's process is not the one that the session got when it began, or it changed
	// between two statements. A pooler in session mode shows the first as well: it looks like one
	// in transaction mode.
	Pooled bool

	Standby  bool // it replays another server's log: writes fail, and locks here exclude no session there
	ReadOnly bool // transactions of this session are read-only by default; always so on a standby

	// LockCapacity is how many locks the server's lock table is made for, of all sessions together.
	LockCapacity int

	// Isolation is what transactions of the session have by default, for example "read committed".
	Isolation string

	// ClockAhead is by how much the server's clock is ahead of this machine's, give or take
	// ClockWithin.
	ClockAhead, ClockWithin time.Duration

	// Settings of the session by name, in the units that pg_settings has: those that Probe reads,
	// where the server has them.
	Settings map[string]string
}

// read are the settings that Probe fetches. What a version lacks is left out.
var read = []string{
	"server_version", "server_encoding", "max_connections", "max_locks_per_transaction", "max_prepared_transactions",
	"superuser_reserved_connections", "reserved_connections",
	"statement_timeout", "lock_timeout", "transaction_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout",
	"client_connection_check_interval", "deadlock_timeout", "fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names",
	"default_transaction_isolation", "default_transaction_read_only",
}

const (
	serverSQL = "SELECT version(), pg_backend_pid()::text, current_database()::text"

	stateSQL = "SELECT pg_backend_pid()::text, pg_is_in_recovery()::text, pg_catalog.current_setting('transaction_read_only')," +
		" pg_catalog.floor(extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint::text, current_user::text," +
		" EXISTS (SELECT FROM pg_catalog.pg_extension e WHERE e.extname = 'citus')::text"
)

// Probe asks in two round trips. It writes nothing, takes no lock, and needs no privilege. A
// statement goes as plain text, so that it works behind any pooler; conn must not be in a
// transaction that has failed.
//
// Errors: the driver's.
func Probe(ctx context.Context, conn *pgx.Conn) (Server, error) {
	first, err := query(ctx, conn, serverSQL)
	if err != nil {
		return Server{}, err
	}
	what, err := only(first, 3)
	if err != nil {
		return Server{}, err
	}
	s := Server{Version: string(what[0]), Product: productOf(string(what[0])), Database: string(what[2])}
	if s.Backend, err = pid(what[1]); err != nil {
		return Server{}, err
	}
	s.Pooled = uint32(s.Backend) != conn.PgConn().PID()
	if !s.Product.Known() {
		return s, nil
	}
	before := time.Now()
	second, err := query(ctx, conn, stateSQL+"; "+settingsQuery())
	if err != nil {
		return Server{}, err
	}
	trip := time.Since(before)
	state, err := only(second, 6)
	if err != nil {
		return Server{}, err
	}
	if err := s.fill(state, before, trip); err != nil {
		return Server{}, err
	}
	s.settle(second[1:])
	return s, nil
}

// RefusesTransactions reports that a pooler in statement mode lets no transaction begin. It closes
// conn then.
func RefusesTransactions(ctx context.Context, conn *pgx.Conn) bool {
	_, err := query(ctx, conn, "BEGIN")
	if err == nil {
		_, err = query(ctx, conn, "ROLLBACK")
	}
	return Code(err) == codeProtocolViolation
}

// query sends statements in one round trip, by the simple protocol: it leaves nothing behind in a
// session that may serve another client the next moment.
func query(ctx context.Context, conn *pgx.Conn, sql string) ([]*pgconn.Result, error) {
	return conn.PgConn().Exec(ctx, sql).ReadAll()
}

// only is the one row of the first answer. What only speaks the protocol may answer anything.
func only(results []*pgconn.Result, columns int) ([][]byte, error) {
	if len(results) == 0 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != columns {
		return nil, errors.New("dblock: the server answers a question about itself with something else: is it Postgres?")
	}
	return results[0].Rows[0], nil
}

func settingsQuery() string {
	return "SELECT s.name, s.setting FROM pg_catalog.pg_settings s WHERE s.name IN ('" + strings.Join(read, "', '") + "')"
}

func (s *Server) fill(row [][]byte, before time.Time, trip time.Duration) error {
	again, err := pid(row[0])
	if err != nil {
		return err
	}
	micros, err := strconv.ParseInt(string(row[3]), 10, 64)
	if err != nil {
		return fmt.Errorf("dblock: the server's time can't be read: %w", err)
	}
	s.Pooled = s.Pooled || again != s.Backend
	s.Standby, s.ReadOnly = string(row[1]) == "true", string(row[2]) == "on"
	s.User = string(row[4])
	if string(row[5]) == "true" && s.Product == PostgreSQL {
		s.Product = Citus
	}
	s.ClockWithin = trip / 2
	s.ClockAhead = time.UnixMicro(micros).Sub(before.Add(s.ClockWithin))
	return nil
}

func (s *Server) settle(results []*pgconn.Result) {
	s.Settings = map[string]string{}
	for _, result := range results {
		for _, row := range result.Rows {
			if len(row) == 2 {
				s.Settings[string(row[0])] = string(row[1])
			}
		}
	}
	s.Isolation = s.Settings["default_transaction_isolation"]
	s.LockCapacity = s.Number("max_locks_per_transaction") * (s.Number("max_connections") + s.Number("max_prepared_transactions"))
}

// Number is a setting that is a number; 0 if there is none.
func (s *Server) Number(setting string) int {
	n, err := strconv.Atoi(s.Settings[setting])
	if err != nil {
		return 0
	}
	return n
}

// Timeout is a setting that is a time; 0, as on the server, where it is off, or where the server
// does not have it.
func (s *Server) Timeout(setting string) time.Duration {
	return time.Duration(s.Number(setting)) * time.Millisecond // the unit of all that Probe reads
}

func pid(text []byte) (int32, error) {
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("dblock: the number of the server's process can't be read: %w", err)
	}
	return int32(n), nil
}
