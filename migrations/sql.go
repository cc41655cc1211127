package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pressly/goose/v3/database"

	"github.com/dblock-go/dblock/internal/schema"
)

// Format is the form of the text that SQL makes.
type Format string

// The formats. All of them also create dblock_schema_version and record in it what they did, just
// as Up does, so that programs find the version they look for and Up knows what is there.
const (
	// Plain is SQL that creates everything, without a transaction of its own.
	Plain Format = "plain"
	// PlainDown is SQL that drops everything, with all data, and dblock_schema_version too.
	PlainDown Format = "plain-down"
	// Goose is both, as one file of the migration tool goose.
	Goose Format = "goose"
)

// SQL is the text of all migrations, to be pasted into migrations of your own. With a schema name
// (see Options.Schema) the tables are created there, and on Postgres the schema too. It needs no
// server. It is an error when the engine, the format or the name is none.
func SQL(engine Engine, format Format, schemaName string) (string, error) {
	if engine != Postgres && engine != MySQL {
		return "", fmt.Errorf("dblock: migrations: there is no engine %q: it is %q or %q", engine, Postgres, MySQL)
	}
	if err := engine.checkName(schemaName); err != nil {
		return "", err
	}
	s := script{engine: engine, schema: schemaName}
	up, err := s.up()
	if err != nil {
		return "", err
	}
	down, err := s.down()
	if err != nil {
		return "", err
	}
	switch format {
	case Plain:
		return plain(up), nil
	case PlainDown:
		return plain(down), nil
	case Goose:
		return upMark + "\n" + up + "\n" + downMark + "\n" + down, nil
	}
	return "", fmt.Errorf("dblock: migrations: there is no format %q: it is %q, %q or %q", format, Plain, PlainDown, Goose)
}

const (
	mark     = "-- +goose "
	upMark   = mark + "Up"
	downMark = mark + "Down"
)

type script struct {
	engine Engine
	schema string
}

func (s script) up() (string, error) {
	var out strings.Builder
	if s.engine == Postgres && s.schema != "" {
		fmt.Fprintf(&out, "CREATE SCHEMA IF NOT EXISTS %s;\n\n", schema.QuotePostgres(s.schema))
	}
	create, err := s.createVersionTable()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&out, "%s;\n%s", create, s.record(0))
	list, err := known(s.engine)
	if err != nil {
		return "", err
	}
	for _, m := range list {
		up, _, err := s.sections(m.Name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "\n%s%s", up, s.record(m.Version))
	}
	return out.String(), nil
}

func (s script) down() (string, error) {
	var out strings.Builder
	list, err := known(s.engine)
	if err != nil {
		return "", err
	}
	for _, m := range slices.Backward(list) {
		_, down, err := s.sections(m.Name)
		if err != nil {
			return "", err
		}
		out.WriteString(down)
	}
	fmt.Fprintf(&out, "DROP TABLE %s;\n", s.versionTable())
	return out.String(), nil
}

func (s script) versionTable() string {
	return schema.Qualify(schema.VersionTable, s.schema, s.engine.quote)
}

func (s script) record(version int64) string {
	return fmt.Sprintf("INSERT INTO %s (version_id, is_applied) VALUES (%d, true);\n", s.versionTable(), version)
}

// sections are the two halves of a migration, which begins with its Up mark.
func (s script) sections(name string) (up, down string, err error) {
	text, err := fs.ReadFile(s.engine.files(s.schema), name)
	if err != nil {
		return "", "", err
	}
	rest, found := strings.CutPrefix(string(text), upMark+"\n")
	up, down, foundDown := strings.Cut(rest, downMark+"\n")
	if !found || !foundDown {
		return "", "", fmt.Errorf("dblock: migration %s has no %q at its start, or no %q", name, upMark, downMark)
	}
	// The tables of others that have these names are not dblock's.
	up = strings.ReplaceAll(up, "CREATE TABLE IF NOT EXISTS ", "CREATE TABLE ")
	return strings.TrimRight(up, "\n") + "\n", down, nil
}

// plain leaves out what only goose reads.
func plain(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, mark) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// createVersionTable is goose's own statement, caught on its way to a database.
func (s script) createVersionTable() (string, error) {
	store, err := gooseStore(s.engine, s.versionTable())
	if err != nil {
		return "", err
	}
	var caught recorder
	err = store.CreateVersionTable(context.Background(), &caught)
	return strings.ReplaceAll(caught.statement, "\n\t", "\n"), err
}

type recorder struct {
	database.DBTxConn // nil: nothing but Exec is called
	statement         string
}

var errRecorder = errors.New("dblock: migrations: recording a statement that has arguments")

func (r *recorder) ExecContext(_ context.Context, statement string, args ...any) (sql.Result, error) {
	if len(args) > 0 {
		return nil, errRecorder
	}
	r.statement = statement
	return nil, nil
}
