// Package mysqlschema finds dblock's tables on MySQL and MariaDB: it sends the generated queries to the database that the
// host chose, and checks that server and tables are what they were written for.
package mysqlschema

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/mysqltext"
	"github.com/dblock-go/dblock/internal/schema"
)

// On returns what the generated queries run on. Without a name that is the database of the connection.
func On(conn mysqltext.Conn, name string) mysqltext.Inline {
	return mysqltext.Inline{Conn: conn, Rewrite: func(query string) string { return SQL(query, name) }}
}

// SQL puts the tables of a statement into the database of that name.
func SQL(query, name string) string { return schema.Qualify(query, name, schema.QuoteMySQL) }

// Check makes sure that server and tables are what the statements were written for, and tells which server it is:
// "MySQL" or "MariaDB". name is that of the tables' database. on is a connection or a pool: the connections of a pool have
// the character set of its DSN.
func Check(ctx context.Context, on mysqldb.DBTX, name string) (server string, err error) {
	if err := mysqlserver.CheckText(ctx, on, name); err != nil {
		return "", Unavailable(err)
	}
	var q mysqldb.Queries
	version, err := q.ServerVersion(ctx, on)
	if err != nil {
		return "", Unavailable(err)
	}
	if server, err = schema.MySQLServer(version); err != nil {
		return server, err
	}
	have, err := q.SchemaVersion(ctx, on)
	if err != nil && mysqlfault.Of(err) != fault.NoSchema {
		return server, Unavailable(err)
	}
	return server, schema.Check(have)
}

// Unavailable says that the server could not be asked.
func Unavailable(err error) error {
	if mysqlfault.Of(fault.NoWrite(err)) != fault.Unreachable {
		return err
	}
	return fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
}
