package migrations_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/migrations"
)

func (e env) sql(format migrations.Format, schemaName string) string {
	e.Helper()
	text, err := migrations.SQL(e.engine, format, schemaName)
	e.must(err)
	return text
}

// run executes a text statement by statement: no driver takes several at once by default.
func (e env) run(text string) {
	e.Helper()
	for statement := range strings.SplitSeq(text, ";\n") {
		if strings.TrimSpace(statement) != "" {
			e.exec(statement)
		}
	}
}

// inSchemas runs a test with tables where the connection says, and in a schema by name.
func inSchemas(t *testing.T, fn func(e env, schemaName string)) {
	t.Run("default", func(t *testing.T) { each(t, func(e env) { fn(e, "") }) })
	t.Run("named", func(t *testing.T) { each(t, func(e env) { fn(e, e.freshSchema()) }) })
}

func TestPlainSQL(t *testing.T) {
	t.Parallel()
	inSchemas(t, func(e env, name string) {
		e.run(e.sql(migrations.Plain, name))
		e.wantTables(name, all())
		e.wantApplied(migrations.Options{Schema: name})
		e.run(e.sql(migrations.PlainDown, name))
		e.wantTables(name, nil)
	})
}

func TestGooseSQL(t *testing.T) {
	t.Parallel()
	inSchemas(t, func(e env, name string) {
		dialect := goose.DialectMySQL
		if e.engine == migrations.Postgres {
			dialect = goose.DialectPostgres
		}
		host, err := goose.NewProvider(dialect, e.db, fstest.MapFS{
			"20260101_dblock.sql": {Data: []byte(e.sql(migrations.Goose, name))},
		}, goose.WithTableName("host_goose"))
		e.must(err)
		_, err = host.Up(e.Context())
		e.must(err)
		e.wantApplied(migrations.Options{Schema: name})
		_, err = host.Down(e.Context())
		e.must(err)
		for _, table := range all() {
			if slices.Contains(e.tables(name), table) {
				e.Errorf("%s is still there", table)
			}
		}
	})
}

// Whichever way the tables came, they are the same to the last column.
func TestSQLMakesWhatUpMakes(t *testing.T) {
	each(t, func(e env) {
		pasted := e.freshSchema()
		e.run(e.sql(migrations.Plain, pasted))
		e.up(migrations.Options{})
		columns := "SELECT CONCAT_WS(' ', table_name, column_name, ordinal_position, data_type, is_nullable, column_default)" +
			" FROM information_schema.columns WHERE table_schema = " + e.placeholder()
		got := e.strings(columns, pasted)
		// A sequence's or function's name in a default has the schema before it.
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], e.quote(pasted)+".", "")
		}
		if want := e.strings(columns, e.in("")); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		if got, want := e.versions(e.quote(pasted)+"."+schema.VersionTable), everyVersion(); len(got) != len(want) {
			t.Errorf("records %v, want %v", got, want)
		}
	})
}

func TestSQLRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine migrations.Engine
		format migrations.Format
		schema string
	}{
		{"", migrations.Plain, ""},
		{"mariadb", migrations.Plain, ""},
		{migrations.Postgres, "", ""},
		{migrations.MySQL, "up", ""},
		{migrations.Postgres, migrations.Plain, "a.b"},
		{migrations.Postgres, migrations.Plain, strings.Repeat("x", 64)},
	} {
		if text, err := migrations.SQL(c.engine, c.format, c.schema); err == nil || text != "" {
			t.Errorf("SQL(%q, %q, %q) = %q, %v", c.engine, c.format, c.schema, text, err)
		}
	}
}

// The number of the newest file is the version that engines ask for, and both engines have the
// same.
func TestFilesAndVersionAgree(t *testing.T) {
	t.Parallel()
	var names [][]string
	for _, engine := range []migrations.Engine{migrations.Postgres, migrations.MySQL} {
		list, err := fs.Glob(migrations.Files(engine, ""), "*.sql")
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range list {
			version, err := goose.NumericComponent(name)
			if err != nil || version != int64(i+1) {
				t.Errorf("%s: %s has number %d (%v), want %d", engine, name, version, err, i+1)
			}
		}
		if int64(len(list)) != schema.Version {
			t.Errorf("%s: the newest of %v is not schema.Version %d", engine, list, schema.Version)
		}
		names = append(names, list)
	}
	if !slices.Equal(names[0], names[1]) {
		t.Errorf("the engines differ: %v", names)
	}
}

func TestRewrittenFiles(t *testing.T) {
	t.Parallel()
	for engine, want := range map[migrations.Engine]string{
		migrations.Postgres: `CREATE TABLE "s".dblock_stock (`,
		migrations.MySQL:    "CREATE TABLE IF NOT EXISTS `s`.dblock_stock (",
	} {
		files := migrations.Files(engine, "s")
		text, err := fs.ReadFile(files, "00001_inventory.sql")
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: no %s in\n%s", err, want, text)
		}
		info, err := fs.Stat(files, "00001_inventory.sql")
		if err != nil || info.Size() != int64(len(text)) {
			t.Errorf("%v: its size is said to be %v, and is %d", err, info, len(text))
		}
		if _, err := files.Open("no.sql"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want fs.ErrNotExist", err)
		}
	}
}
