package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Home returns name or, if it is empty, the database that the connection uses. Statements name it:
// a host may send USE on a connection of its pool, and nothing sets that back when the connection
// returns to the pool.
func Home(ctx context.Context, conn Conn, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	var home sql.NullString // NULL: CheckSchema says what is missing
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE() LIMIT 1").Scan(&home); err != nil {
		return "", Unavailable(err)
	}
	return home.String, nil
}

// CheckSchema makes sure that server, session settings and tables are what the statements were
// written for, with the tables in the database of that name. It returns which server it is: "MySQL"
// or "MariaDB". conn is a connection or a pool: the connections of a pool have the character set of
// its DSN.
func CheckSchema(ctx context.Context, conn Conn, name string) (server string, err error) {
	if err := CheckText(ctx, conn, name); err != nil {
		return "", Unavailable(err)
	}
	var q mysqldb.Queries
	on := On(conn, name)
	if err := checkSettings(ctx, on); err != nil {
		return "", Unavailable(err)
	}
	version, err := q.ServerVersion(ctx, on)
	if err != nil {
		return "", Unavailable(err)
	}
	if server, err = schema.MySQLServer(version); err != nil {
		return server, err
	}
	have, err := q.SchemaVersion(ctx, on)
	if err != nil && Classify(err) != sqlerr.NoSchema {
		return server, Unavailable(err)
	}
	if err := schema.Check(have); err != nil {
		return server, err
	}
	differences, err := Differences(ctx, conn, name, server, have)
	if err != nil {
		return server, Unavailable(err)
	}
	return server, schema.CheckObjects(differences)
}

const readUncommitted = "READ-UNCOMMITTED"

// checkSettings refuses settings of the session with which dblock's statements are not committed,
// fail, read what others have not committed, or read a part of the rows.
func checkSettings(ctx context.Context, on mysqldb.DBTX) error {
	rows, err := on.QueryContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name IN ('sql_select_limit', 'autocommit', 'completion_type', 'sql_safe_updates', 'check_constraint_checks', 'sql_mode', 'sql_big_selects', 'log_bin', 'binlog_format', 'transaction_isolation', 'tx_isolation', 'transaction_read_only', 'tx_read_only')")
	if err != nil {
		return err
	}
	defer rows.Close()
	settings := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		settings[strings.ToLower(name)] = strings.ToUpper(value)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	switch {
	case settings["sql_select_limit"] != AllRows: // first, because it cuts off the other settings too
		return fmt.Errorf("%w: the connections have a sql_select_limit, so the server leaves out rows that are read, and counts go wrong: "+
			"take sql_select_limit out of the DSN and of the server's settings", dblock.ErrUnsupported)
	case settings["autocommit"] == "OFF":
		return fmt.Errorf("%w: the connections have autocommit off, so no statement on them would be committed: "+
			"take autocommit=0 out of the DSN and of the server's settings", dblock.ErrUnsupported)
	case settings["transaction_read_only"] == "ON" || settings["tx_read_only"] == "ON":
		return fmt.Errorf("%w: the connections have transaction_read_only (on MariaDB tx_read_only) on, so single statements can't write: "+
			"take it out of the DSN and of the server's settings, and begin transactions of your own with READ ONLY", dblock.ErrUnsupported)
	case settings["completion_type"] != "NO_CHAIN":
		return fmt.Errorf("%w: the connections have completion_type = %s, so a transaction follows each one, and later statements on the "+
			"connection are not committed: take completion_type out of the DSN and of the server's settings", dblock.ErrUnsupported, settings["completion_type"])
	case settings["sql_safe_updates"] == "ON":
		return fmt.Errorf("%w: the connections have sql_safe_updates on, so the server may refuse any UPDATE with error 1175: "+
			"take sql_safe_updates out of the DSN and of the server's settings", dblock.ErrUnsupported)
	case strings.Contains(settings["sql_mode"], "EMPTY_STRING_IS_NULL"): // MariaDB's
		return fmt.Errorf("%w: the connections have EMPTY_STRING_IS_NULL in their sql_mode, so empty texts are lost: "+
			"take it out of the DSN and of the server's settings", dblock.ErrUnsupported)
	case settings["sql_big_selects"] == "OFF":
		return fmt.Errorf("%w: the connections have sql_big_selects off, so statements with large estimates fail: "+
			"take sql_big_selects and max_join_size out of the DSN and of the server's settings", dblock.ErrUnsupported)
	case settings["check_constraint_checks"] == "OFF": // MariaDB's
		return fmt.Errorf("%w: the connections have check_constraint_checks off, so stock can go below zero: "+
			"take check_constraint_checks out of the DSN and of the server's settings", dblock.ErrUnsupported)
	case settings["log_bin"] == "ON" && settings["binlog_format"] == "STATEMENT":
		return fmt.Errorf("%w: the binary log has binlog_format = STATEMENT, and the server refuses writes at READ COMMITTED with error 1665: "+
			"set binlog_format = ROW", dblock.ErrUnsupported)
	case settings["transaction_isolation"] == readUncommitted || settings["tx_isolation"] == readUncommitted:
		return fmt.Errorf("%w: the connections read at READ UNCOMMITTED, so a sale that is rolled back would be answered as sold: "+
			"take it out of the DSN and of the server's settings, and set it for the transactions that want it", dblock.ErrUnsupported)
	}
	return checkClock(ctx, on)
}

// checkClock refuses a session whose clock stands still. If the variable timestamp is set, it is
// the clock of each statement; SYSDATE reads that of the machine.
func checkClock(ctx context.Context, on mysqldb.DBTX) error {
	seconds, err := new(mysqldb.Queries).ClockStandsFor(ctx, on)
	if err == nil && seconds > 0 {
		err = fmt.Errorf("%w: the connections have a timestamp, so the server's clock stands still for them, and leases of others seem to "+
			"have ended: take timestamp out of the DSN and of the server's settings", dblock.ErrUnsupported)
	}
	return err
}

// Unavailable returns the error of a look that failed.
func Unavailable(err error) error {
	is := Classify(sqlerr.Unwritten(err))
	isContexts := is == sqlerr.Busy && ErrorNumber(err) == 0
	if errors.Is(err, dblock.ErrUnsupported) || sqlerr.Public(is) == nil || isContexts {
		return err
	}
	return sqlerr.Wrap(is, err, "looking for dblock's tables", "")
}
