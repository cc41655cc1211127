package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// On returns what the generated queries run on. Without a name the connection looks where it always does.
func On(db pgdb.DBTX, name string) pgdb.DBTX {
	if name == "" {
		return db
	}
	return qualified{db, name}
}

// Qualify puts the tables of a statement into the schema of that name.
func Qualify(query, name string) string { return schema.Qualify(query, name, schema.QuotePostgres) }

// qualified sends every statement with its tables qualified.
type qualified struct {
	pgdb.DBTX
	name string
}

func (q qualified) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return q.DBTX.Exec(ctx, Qualify(sql, q.name), args...)
}

func (q qualified) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return q.DBTX.Query(ctx, Qualify(sql, q.name), args...)
}

func (q qualified) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return q.DBTX.QueryRow(ctx, Qualify(sql, q.name), args...)
}

// FindSchema returns name or, if it is empty, the schema of dblock's tables on the session's search_path. It is empty if the path has
// no schema. Statements name it, because a session looks for a table without a schema among its temporary tables first.
//
// Errors: those of CheckSearchPath, unless a name is given: then it sends nothing.
func FindSchema(ctx context.Context, db Querier, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	return lookUp(ctx, db)
}

// lookUp checks the search_path, and returns the schema of dblock's tables on it.
func lookUp(ctx context.Context, db Querier) (string, error) {
	rows, err := db.Query(ctx, pgdb.FindSchema)
	if err != nil {
		return "", err
	}
	var found pgdb.FindSchemaRow
	if rows.Next() {
		err = rows.Scan(&found.Name, &found.SearchPath)
	}
	rows.Close()
	if err = errors.Join(err, rows.Err()); err != nil {
		return "", err
	}
	return found.Name, CheckSearchPath(found.SearchPath)
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// RequireSchema checks the search_path, and is FindSchema and CheckSchema: constructors call it once.
func RequireSchema(ctx context.Context, db pgdb.DBTX, name string) (string, error) {
	found, err := lookUp(ctx, db)
	if err != nil {
		return "", unavailable(err)
	}
	home := cmp.Or(name, found)
	return home, CheckSchema(ctx, db, home)
}

// CheckSchema makes sure that server and tables are what the statements were written for, with the tables in the schema of that name.
func CheckSchema(ctx context.Context, db pgdb.DBTX, name string) error {
	var q pgdb.Queries
	on := On(db, name)
	server, err := q.ServerVersion(ctx, on, name)
	if err != nil {
		return unavailable(err)
	}
	if err := schema.PostgresServer(server.Version); err != nil {
		return err
	}
	if err := schema.PostgresEncoding(server.Encoding); err != nil {
		return err
	}
	if err := CheckClientEncoding(server.ClientEncoding); err != nil {
		return err
	}
	if err := CheckOwners(server.Untrusted); err != nil {
		return err
	}
	have, err := q.SchemaVersion(ctx, on)
	if err != nil && Classify(err) != sqlerr.NoSchema {
		return unavailable(err)
	}
	if err := schema.Check(have); err != nil {
		return err
	}
	differences, err := SchemaDifferences(ctx, db, name, have)
	if err != nil {
		return unavailable(err)
	}
	return schema.CheckObjects(differences)
}

// CheckOwners refuses tables of a role that has fewer rights than the session. untrusted names one; empty: there is none.
func CheckOwners(untrusted string) error {
	if untrusted == "" {
		return nil
	}
	return fmt.Errorf("%w: %s, and this session is a superuser's: a trigger of that role's would run with its rights: connect as that role, "+
		"or give the table to a superuser or to the owner of the schema", dblock.ErrSchema, untrusted)
}

// unavailable returns the error of a look that failed.
func unavailable(err error) error {
	is := Classify(sqlerr.Unwritten(err))
	isContexts := is == sqlerr.Busy && Code(err) == ""
	if sqlerr.Public(is) == nil || isContexts {
		return err
	}
	return sqlerr.Wrap(is, err, "looking for dblock's tables", "")
}
