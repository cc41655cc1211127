package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Server is what was found. Where Product has no MySQL or MariaDB inside that is known here (see
// Product.Known), only Version, Comment, Product, ConnID and Database are filled.
type Server struct {
	Version  string // the text of VERSION()
	Comment  string // the text of @@version_comment
	Product  Product
	MariaDB  bool   // of the two families; false: MySQL
	Database string // "" if the DSN names none
	User     string // user@host, as the server knows the account

	// ConnID is the session's number, as the list of processes shows it.
	ConnID int64

	// Proxied: a proxy answered in the server's place, or the session changed between two
	// statements. That it is false proves nothing: a proxy may be silent.
	Proxied bool

	ReadOnly bool // read_only, super_read_only or innodb_read_only: a replica, as a rule
	Galera   bool // wsrep_on: a node of a cluster
	Group    bool // a member of a replication group

	// Isolation is what transactions of the session have by default, for example "REPEATABLE-READ".
	Isolation string

	// ClockAhead is by how much the server's clock is ahead of this machine's, give or take
	// ClockWithin.
	ClockAhead, ClockWithin time.Duration

	// Settings are the session's variables by name, as SHOW VARIABLES has them: those that Inspect
	// reads, where the server has them.
	Settings map[string]string
}

// read are the variables that Inspect fetches. What a server lacks is left out.
var read = []string{
	"read_only", "super_read_only", "innodb_read_only", "transaction_read_only", "tx_read_only",
	"wsrep_on", "wsrep_provider", "group_replication_group_name", "pseudo_thread_id",
	"transaction_isolation", "tx_isolation", "autocommit",
	"wait_timeout", "innodb_lock_wait_timeout", "lock_wait_timeout", "max_execution_time", "max_statement_time", "idle_transaction_timeout",
	"innodb_flush_log_at_trx_commit", "completion_type", "sql_safe_updates", "check_constraint_checks", "log_bin", "binlog_format", "sync_binlog", "innodb_doublewrite", "max_connections", "max_user_connections",
	"default_storage_engine", "character_set_client",
}

// AllRows is the sql_select_limit of a session whose queries return all rows. Under a smaller one a
// query without a LIMIT of its own leaves rows out, SHOW does too, and nothing says so.
const AllRows = "18446744073709551615"

const (
	// This very text a proxy may answer itself, as ProxySQL does.
	versionSQL = "SELECT @@version_comment LIMIT 1"

	serverSQL = "SELECT VERSION(), CONNECTION_ID(), DATABASE(), CURRENT_USER()," +
		" TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) LIMIT 1"

	whoIsInTheGroup = "SELECT COUNT(*) FROM performance_schema.replication_group_members" +
		" WHERE member_id = @@server_uuid AND member_state <> 'OFFLINE' LIMIT 1"
)

// Inspect asks in three round trips, and in a fourth one where group replication is set up. It
// writes nothing, takes no lock, and needs no privilege.
//
// Errors: the driver's.
func Inspect(ctx context.Context, conn *sql.Conn) (Server, error) {
	var s Server
	if err := conn.QueryRowContext(ctx, versionSQL).Scan(&s.Comment); err != nil {
		return Server{}, err
	}
	var database, user sql.NullString
	var micros int64
	before := time.Now()
	if err := conn.QueryRowContext(ctx, serverSQL).Scan(&s.Version, &s.ConnID, &database, &user, &micros); err != nil {
		return Server{}, err
	}
	s.ClockWithin = time.Since(before) / 2
	s.ClockAhead = time.UnixMicro(micros).Sub(before.Add(s.ClockWithin))
	s.Database, s.User = database.String, user.String
	s.Product = productOf(s.Version, s.Comment)
	s.MariaDB = s.Product == ProductMariaDB
	s.Proxied = strings.Contains(s.Comment, "ProxySQL")
	if !s.Product.Known() {
		return s, nil
	}
	if err := s.readSettings(ctx, conn); err != nil {
		return Server{}, err
	}
	s.settle()
	if s.Settings["group_replication_group_name"] != "" {
		s.Group = inGroup(ctx, conn)
	}
	return s, nil
}

func (s *Server) readSettings(ctx context.Context, conn *sql.Conn) error {
	rows, err := conn.QueryContext(ctx, "SHOW VARIABLES WHERE Variable_name IN ('"+strings.Join(read, "', '")+"')")
	if err != nil {
		return err
	}
	defer rows.Close()
	s.Settings = map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		s.Settings[strings.ToLower(name)] = value
	}
	return rows.Err()
}

// settle draws from the settings what they say together.
func (s *Server) settle() {
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only"} {
		s.ReadOnly = s.ReadOnly || s.On(name)
	}
	provider := s.Settings["wsrep_provider"]
	s.Galera = s.On("wsrep_on") && provider != "" && provider != "none"
	s.Isolation = s.Settings["transaction_isolation"]
	if s.Isolation == "" {
		s.Isolation = s.Settings["tx_isolation"] // MariaDB's name for it, before 11.1
	}
	// The server sets this one to the session's number, and it was read a statement later.
	if thread := s.Number("pseudo_thread_id"); thread != 0 && thread != s.ConnID {
		s.Proxied = true
	}
}

// inGroup believes that a server which has a group's name is in the group, where the members can't
// be seen.
func inGroup(ctx context.Context, conn *sql.Conn) bool {
	var members int
	err := conn.QueryRowContext(ctx, whoIsInTheGroup).Scan(&members)
	return err != nil || members > 0
}

// On reports that a variable is on. MariaDB's read_only has more values than ON, all of which
// forbid something.
func (s *Server) On(setting string) bool {
	switch strings.ToUpper(s.Settings[setting]) {
	case "", "OFF", "0":
		return false
	}
	return true
}

// Number is a variable that is a number; 0 if there is none.
func (s *Server) Number(setting string) int64 {
	n, err := strconv.ParseFloat(s.Settings[setting], 64) // MariaDB has some with a fraction
	if err != nil {
		return 0
	}
	return int64(n)
}

// Seconds is a variable that is a time in seconds; 0 if the server does not have it.
func (s *Server) Seconds(setting string) time.Duration {
	d, err := time.ParseDuration(fmt.Sprintf("%ss", s.Settings[setting]))
	if err != nil {
		return 0
	}
	return d
}
