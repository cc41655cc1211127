package doctor

import (
	"context"
	"database/sql"
	"fmt"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// MySQL examines the server of MySQL or MariaDB that config leads to, with dblock's tables in the
// database of that name; "" is the connection's own. A server that can't be reached is a finding as
// well. It writes nothing.
func MySQL(ctx context.Context, config *mysqldriver.Config, name string) Report {
	target := config.Addr + "/" + config.DBName
	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		return unreachable(engineMySQL, target, err)
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }() // all has been said
	conn, err := db.Conn(ctx)
	if err != nil {
		return unreachable(engineMySQL, target, err)
	}
	defer func() { _ = conn.Close() }()
	f, err := mysqlFacts(ctx, conn, name)
	if err != nil {
		return unreachable(engineMySQL, target, err)
	}
	f.Target, f.ReadTimeout = target, config.ReadTimeout
	return Evaluate(f)
}

func mysqlFacts(ctx context.Context, conn *sql.Conn, name string) (Facts, error) {
	limit, err := readAllRows(ctx, conn)
	if err != nil {
		return Facts{}, err
	}
	s, err := mysql.Inspect(ctx, conn)
	if err != nil {
		return Facts{}, err
	}
	if s.Settings != nil {
		s.Settings[selectLimit] = limit
	}
	f := Facts{
		Engine: engineMySQL, Product: string(s.Product), Version: s.Version, Known: s.Product.Known(),
		Database: s.Database, User: s.User, Pooled: s.Proxied, Standby: s.ReadOnly, SessionLocks: s.SessionLocks(),
		ReadOnly: s.On("transaction_read_only") || s.On("tx_read_only"),
		Ahead:    s.ClockAhead, Within: s.ClockWithin, Isolation: s.Isolation, Settings: s.Settings,
		MaxConnections: int(s.Number("max_connections")), Schema: name,
	}
	if !f.Known {
		return f, nil
	}
	switch {
	case s.Galera:
		f.Cluster = "a node of a Galera cluster"
	case s.Group:
		f.Cluster = "a member of a replication group"
	}
	server, tooOld := schema.MySQLServer(s.Version)
	f.TooOld = tooOld
	var label string
	if err := conn.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_connected'").Scan(&label, &f.Connections); err != nil {
		return Facts{}, err
	}
	stands, err := new(mysqldb.Queries).ClockStandsFor(ctx, conn)
	if err != nil {
		return Facts{}, err
	}
	f.ClockStandsStill = stands > 0
	if f.Schema == "" {
		f.Schema = s.Database
	}
	if f.Schema == "" {
		return f, nil
	}
	return f, f.tablesMySQL(ctx, conn, server)
}

// readAllRows has the session read all rows, and returns the sql_select_limit that it had.
func readAllRows(ctx context.Context, conn *sql.Conn) (limit string, err error) {
	if err := conn.QueryRowContext(ctx, "SELECT CAST(@@"+selectLimit+" AS CHAR) LIMIT 1").Scan(&limit); err != nil {
		return "", err
	}
	if limit != mysql.AllRows {
		_, err = conn.ExecContext(ctx, "SET SESSION "+selectLimit+" = "+mysql.AllRows)
	}
	return limit, err
}

func (f *Facts) tablesMySQL(ctx context.Context, conn *sql.Conn, server string) error {
	var q mysqldb.Queries
	have, err := q.SchemaVersion(ctx, mysql.On(conn, f.Schema))
	switch {
	case err == nil:
		f.Have = have
	case mysql.Classify(err) != sqlerr.NoSchema:
		f.Unread = err
	}
	columns, seen, err := f.seenMySQL(ctx, conn)
	if err != nil {
		return err
	}
	for name, t := range seen {
		if t.Lacks, err = f.lacksMySQL(ctx, conn, name, columns[name]); err != nil {
			return err
		}
		seen[name] = t
	}
	if mysql.Classify(f.Unread) == sqlerr.NotPermitted { // then it is not among those that the user may see
		seen[schema.VersionTable] = Table{Lacks: []string{"SELECT"}}
	}
	f.setTables(seen)
	if f.current() {
		f.Differ, err = mysql.Differences(ctx, conn, f.Schema, server, f.Have)
	}
	return err
}

// seenMySQL lists the tables that the user may see, with the name of a column each.
func (f *Facts) seenMySQL(ctx context.Context, conn *sql.Conn) (columns map[string]string, seen map[string]Table, err error) {
	rows, err := mysql.Inline{Conn: conn}.QueryContext(ctx, "SELECT t.TABLE_NAME, COALESCE(t.ENGINE, ''), MIN(c.COLUMN_NAME)"+
		" FROM information_schema.TABLES t JOIN information_schema.COLUMNS c USING (TABLE_SCHEMA, TABLE_NAME)"+
		` WHERE t.TABLE_SCHEMA = _utf8mb4 ? AND t.TABLE_NAME LIKE 'dblock|_%' ESCAPE '|' GROUP BY t.TABLE_NAME, t.ENGINE`, []byte(f.Schema))
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	columns, seen = map[string]string{}, map[string]Table{}
	for rows.Next() {
		var t Table
		var column string
		if err := rows.Scan(&t.Name, &t.Storage, &column); err != nil {
			return nil, nil, err
		}
		columns[t.Name], seen[t.Name] = column, t
	}
	return columns, seen, rows.Err()
}

// lacksMySQL has the server explain a statement for each right, which takes the right and writes
// nothing. What is granted to roles, or to the whole server, counts like that, too.
func (f *Facts) lacksMySQL(ctx context.Context, conn *sql.Conn, name, column string) (lacks []string, err error) {
	table, col := schema.QuoteMySQL(f.Schema)+"."+schema.QuoteMySQL(name), schema.QuoteMySQL(column)
	uses := map[string]string{
		"SELECT": fmt.Sprintf("SELECT %s FROM %s WHERE FALSE", col, table),
		"INSERT": fmt.Sprintf("INSERT INTO %s (%s) VALUES (NULL)", table, col),
		"UPDATE": fmt.Sprintf("UPDATE %s SET %s = NULL WHERE FALSE", table, col),
		"DELETE": fmt.Sprintf("DELETE FROM %s WHERE FALSE", table),
	}
	for _, right := range schema.Rights(schema.MySQL, name) {
		rows, err := conn.QueryContext(ctx, "EXPLAIN "+uses[right])
		if err == nil {
			err = drain(rows)
		}
		if mysql.Classify(err) == sqlerr.NotPermitted {
			lacks = append(lacks, right)
		} else if mysql.Classify(err) == sqlerr.Unresolved {
			return nil, err
		}
	}
	return lacks, nil
}

func drain(rows *sql.Rows) error {
	for rows.Next() {
	}
	return rows.Err()
}
