package migrations

import (
	"embed"
	"io/fs"

	"github.com/dblock-go/dblock/internal/schema"
)

//go:embed postgres/*.sql mysql/*.sql
var embedded embed.FS

// Engine is what a set of migrations is written for.
type Engine string

// The engines. MySQL stands for MariaDB too: they run the same files.
const (
	Postgres Engine = "postgres"
	MySQL    Engine = "mysql"
)

func (e Engine) quote(name string) string {
	if e == Postgres {
		return schema.QuotePostgres(name)
	}
	return schema.QuoteMySQL(name)
}

func (e Engine) checkName(name string) error {
	if e == Postgres {
		return schema.CheckPostgresName(name)
	}
	return schema.CheckMySQLName(name)
}

// files are the engine's migrations with every table in the named schema.
func (e Engine) files(schemaName string) fs.FS {
	sub, err := fs.Sub(embedded, string(e))
	if err != nil {
		panic(err) // only an engine that is no constant of this package gets here
	}
	return rewritten{sub, e.qualify(schemaName)}
}

// qualify returns what puts every table of a text into the named schema.
func (e Engine) qualify(schemaName string) func(string) string {
	return func(sql string) string { return schema.Qualify(sql, schemaName, e.quote) }
}
