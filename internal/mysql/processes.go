package mysql

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// Process is a session, as the server lists it.
type Process struct {
	ID         int64
	User, Host string
	Database   string // "" for none
	Statement  string // the first 100 bytes of what it runs now; "" for nothing
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Processes are the sessions that the account may see. It asks by SHOW PROCESSLIST: MySQL makes
// information_schema.processlist whole whatever is read of it, the running statements with it, and
// refuses to (3854) while one of them has bytes in it that are no text.
func Processes(ctx context.Context, on Querier) ([]Process, error) {
	rows, err := on.QueryContext(ctx, "SHOW PROCESSLIST")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var processes []Process
	var id, user, host, database, statement sql.NullString
	fields := make([]any, len(columns))
	for i, name := range columns {
		switch strings.ToLower(name) {
		case "id":
			fields[i] = &id
		case "user":
			fields[i] = &user
		case "host":
			fields[i] = &host
		case "db":
			fields[i] = &database
		case "info":
			fields[i] = &statement
		default:
			fields[i] = new(sql.RawBytes)
		}
	}
	for rows.Next() {
		if err := rows.Scan(fields...); err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(id.String, 10, 64)
		if err != nil {
			return nil, err
		}
		processes = append(processes, Process{ID: n, User: user.String, Host: host.String, Database: database.String, Statement: statement.String})
	}
	return processes, rows.Err()
}
