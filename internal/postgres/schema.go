package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Schema is the schema of dblock's tables. It puts it into each statement once. It is safe for
// concurrent use.
type Schema struct {
	name string // empty: the connection looks for tables where it always does

	mu        sync.RWMutex
	qualified map[string]string // by the text of the statement
}

// NewSchema returns the schema of that name.
func NewSchema(name string) *Schema { return &Schema{name: name} }

// Table returns the name of one of dblock's tables.
func (s *Schema) Table(name string) pgx.Identifier { return pgx.Identifier{s.name, name} }

// SQL puts the schema before the tables of a statement. It keeps the result, so the statement must
// be one of a few.
func (s *Schema) SQL(statement string) string {
	if s.name == "" {
		return statement
	}
	s.mu.RLock()
	text, known := s.qualified[statement]
	s.mu.RUnlock()
	if known {
		return text
	}
	text = schema.Qualify(statement, s.name, schema.QuotePostgres)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.qualified == nil {
		s.qualified = make(map[string]string)
	}
	s.qualified[statement] = text
	return text
}

// On returns what the generated queries run on.
func (s *Schema) On(db pgdb.DBTX) pgdb.DBTX { return qualified{db, s} }

// qualified sends every statement with its tables qualified.
type qualified struct {
	pgdb.DBTX
	*Schema
}

func (q qualified) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return q.DBTX.Exec(ctx, q.SQL(sql), args...)
}

func (q qualified) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return q.DBTX.Query(ctx, q.SQL(sql), args...)
}

func (q qualified) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return q.DBTX.QueryRow(ctx, q.SQL(sql), args...)
}

// FindSchema returns name or, if it is empty, the schema of dblock's tables on the session's
// search_path. It is empty if the path has no schema. Statements name it, because a session looks
// for a table without a schema among its temporary tables first.
//
// Errors: those of CheckSearchPath, unless a name is given: then it sends nothing.
func FindSchema(ctx context.Context, db DB, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	return findSchema(ctx, db)
}

// findSchema checks the search_path, and returns the schema of dblock's tables on it.
func findSchema(ctx context.Context, db DB) (string, error) {
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

// RequireSchema checks the search_path, and is FindSchema and checkSchema: constructors call it
// once.
func RequireSchema(ctx context.Context, db pgdb.DBTX, name string) (*Schema, error) {
	found, err := findSchema(ctx, db)
	if err != nil {
		return nil, unavailable(err)
	}
	name = cmp.Or(name, found)
	return NewSchema(name), checkSchema(ctx, db, name)
}

// checkSchema makes sure that server and tables are what the statements were written for, with the
// tables in the schema of that name.
func checkSchema(ctx context.Context, db pgdb.DBTX, name string) error {
	var q pgdb.Queries
	on := NewSchema(name).On(db)
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

// CheckOwners refuses tables of a role that has fewer rights than the session. untrusted names one;
// empty: there is none.
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
