package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/devdb"
)

var mysqlSettings = []string{
	"innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin", "innodb_doublewrite", "innodb_flush_method",
	"innodb_buffer_pool_size", "max_connections",
}

type mysqlProbe struct {
	kind devdb.Kind
	db   *sql.DB
	conn *sql.Conn
}

func newMySQLProbe(ctx context.Context, kind devdb.Kind, dsn string) (probe, error) {
	cfg, err := devdb.ParseMySQL(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Params = nil                // variables of the session: sql_select_limit would cut off what SHOW says
	cfg.Logger = &mysql.NopLogger{} // what it would say is in the errors too
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &mysqlProbe{kind, db, conn}, nil
}

func (p *mysqlProbe) close() error { return errors.Join(p.conn.Close(), p.db.Close()) }

// show runs one of the SHOW statements that answer with names and values.
func (p *mysqlProbe) show(ctx context.Context, what string, names ...string) ([]setting, error) {
	rows, err := p.conn.QueryContext(ctx, "SHOW "+what+" WHERE Variable_name IN ('"+strings.Join(names, "', '")+"')")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var list []setting
	for rows.Next() {
		var s setting
		if err := rows.Scan(&s.Name, &s.Value); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

func (p *mysqlProbe) number(ctx context.Context, what, name string) (int64, error) {
	list, err := p.show(ctx, what, name)
	if err != nil {
		return 0, err
	}
	if len(list) != 1 {
		return 0, fmt.Errorf("SHOW %s has no %s", what, name)
	}
	return strconv.ParseInt(list[0].Value, 10, 64)
}

func (p *mysqlProbe) settings(ctx context.Context) (settings, error) {
	list, err := p.show(ctx, "GLOBAL VARIABLES", mysqlSettings...)
	if err != nil {
		return settings{}, err
	}
	for i, s := range list {
		if s.Name == "innodb_buffer_pool_size" {
			list[i].Value = size(s.Value)
		}
	}
	inOrder(list, mysqlSettings)
	return settings{Kind: p.kind, List: list}, nil
}

// size writes a number of bytes the way it is written in an option file.
func size(bytes string) string {
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil {
		return bytes
	}
	for _, unit := range []struct {
		suffix string
		bytes  int64
	}{{"G", 1 << 30}, {"M", 1 << 20}} {
		if n > 0 && n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.suffix
		}
	}
	return bytes
}

// freeConnections has nothing to take off for the administrator: that connection comes on top of
// max_connections.
func (p *mysqlProbe) freeConnections(ctx context.Context) (int, error) {
	most, err := p.number(ctx, "GLOBAL VARIABLES", "max_connections")
	if err != nil {
		return 0, err
	}
	used, err := p.number(ctx, "GLOBAL STATUS", "Threads_connected")
	if err != nil {
		return 0, err
	}
	return int(max(most-used, 0)), nil
}

// logBytes is the LSN in both products, and not Innodb_os_log_written. That counts what is written,
// when it is written. On MySQL these are whole blocks of 512 bytes, the last one again and again: a
// commit of 120 bytes counts as 500 to 3,000. If a commit does not wait for the disk, it stands
// still for a second. On MySQL the LSN among the status variables is up to a second old, too, and
// only the monitor has it as it is.
func (p *mysqlProbe) logBytes(ctx context.Context) (int64, error) {
	if p.kind == devdb.MariaDB {
		return p.number(ctx, "GLOBAL STATUS", "Innodb_lsn_current")
	}
	var engine, name, text string
	if err := p.conn.QueryRowContext(ctx, "SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &text); err != nil {
		return 0, fmt.Errorf("the position in the redo log (it takes GRANT PROCESS ON *.*): %w", err)
	}
	return lsnOf(text)
}

var lsnLine = regexp.MustCompile(`(?m)^Log sequence number\s+(\d+)\s*$`)

// lsnOf finds the LSN in what InnoDB's monitor says.
func lsnOf(monitor string) (int64, error) {
	found := lsnLine.FindStringSubmatch(monitor)
	if found == nil {
		return 0, errors.New("SHOW ENGINE INNODB STATUS has no line with the log sequence number")
	}
	return strconv.ParseInt(found[1], 10, 64)
}

// statements takes this session's off, with the one that reads them: the server counted it after it
// had answered the one before.
func (p *mysqlProbe) statements(ctx context.Context) (n int64, ok bool, err error) {
	all, err := p.number(ctx, "GLOBAL STATUS", "Questions")
	if err != nil {
		return 0, false, err
	}
	own, err := p.number(ctx, "SESSION STATUS", "Questions")
	if err != nil {
		return 0, false, err
	}
	return all - (own - 1), true, nil
}
