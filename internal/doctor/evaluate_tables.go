package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/schema"
)

const migrateUp = "dblock migrate up"

func tablesVersion(f Facts) []Finding {
	switch {
	case f.Schema == "":
		return []Finding{finding(Problem, "the connection is in no schema or database", "name one in the DSN, or with --schema")}
	case f.Unread != nil:
		return []Finding{finding(Problem, "the tables' version can't be read: "+oneLine(f.Unread), "give the user what docs/grants.md lists")}
	case f.Have == 0 && f.hasTables():
		return []Finding{finding(Problem, "dblock's tables are there"+f.in()+", and "+schema.VersionTable+" records no version of them",
			"restore it from a backup, or run `"+migrateUp+"`, which records the version or says how to")}
	case f.Have == 0:
		return []Finding{finding(Problem, "there are no dblock tables"+f.in(), "run `"+migrateUp+"`, or name their schema with --schema; "+
			"if they are there, the user lacks what docs/grants.md lists")}
	case f.Have < schema.Version:
		return []Finding{finding(Problem, fmt.Sprintf("the tables have version %d, older than this program's %d", f.Have, schema.Version),
			"run `"+migrateUp+"`")}
	case f.Have > schema.Version:
		return []Finding{finding(Problem, fmt.Sprintf("the tables have version %d, newer than this program's %d", f.Have, schema.Version),
			"update the program, or run the newer program's `dblock migrate down`")}
	}
	return []Finding{fine(fmt.Sprintf("version %d%s", f.Have, f.in()))}
}

// hasTables reports whether tables beside the one with the version were found.
func (f Facts) hasTables() bool {
	return slices.ContainsFunc(f.Tables, func(t Table) bool { return !t.Missing && t.Name != schema.VersionTable })
}

func (f Facts) in() string { return fmt.Sprintf(" in %q", f.Schema) }

// current reports that the tables are those of this program, so that it knows what each should be.
func (f Facts) current() bool { return f.Unread == nil && f.Have == schema.Version }

// tables is about where their rows are kept: fencing tokens that a crash takes back are given out
// again.
func tables(f Facts) []Finding {
	if !f.current() {
		return nil
	}
	var list []Finding
	for _, t := range f.Tables {
		switch {
		case t.Missing:
			list = append(list, finding(Problem, t.Name+" is missing, or this user may not see it",
				"give the user what docs/grants.md lists; if it was dropped, restore it, or run `"+migrateUp+"`"))
		case f.postgres() && t.Storage != "permanent":
			list = append(list, finding(Problem, t.Name+" is "+t.Storage+": a crash empties it, and tokens begin again",
				"ALTER TABLE "+f.qualified(t.Name)+" SET LOGGED"))
		case !f.postgres() && t.Storage != "" && !strings.EqualFold(t.Storage, "InnoDB"): // a view has none
			list = append(list, finding(Problem, t.Name+" is kept by "+t.Storage+", which has no transactions and no row locks as dblock needs them",
				"ALTER TABLE "+f.qualified(t.Name)+" ENGINE = InnoDB"))
		}
	}
	for _, what := range f.Differ {
		if table, whole := strings.CutPrefix(what, "table "); whole && f.misses(strings.TrimSuffix(table, " is missing")) {
			continue
		}
		if strings.Contains(what, " has the storage engine ") || strings.Contains(what, " has the persistence ") {
			continue // said above
		}
		list = append(list, finding(Problem, what, "run `"+migrateUp+"`, which creates what is missing and names what it does not alter"))
	}
	if f.Stranger != "" {
		list = append(list, finding(Warning, f.Stranger+", which neither owns the schema nor was granted CREATE on it: "+
			"a trigger of that role's runs with the rights of every session that writes the table",
			"if the role is to migrate, grant it CREATE ON SCHEMA "+schema.QuotePostgres(f.Schema)+"; else see what triggers it made, and ALTER TABLE … OWNER TO …"))
	}
	kept := "permanent"
	if !f.postgres() {
		kept = "InnoDB"
	}
	return orFine(list, fmt.Sprintf("%d tables, all %s", len(f.Tables), kept))
}

// misses reports whether a table was not found.
func (f Facts) misses(table string) bool {
	return slices.ContainsFunc(f.Tables, func(t Table) bool { return t.Name == table && t.Missing })
}

func (f Facts) qualified(table string) string {
	quote := schema.QuoteMySQL
	if f.postgres() {
		quote = schema.QuotePostgres
	}
	return schema.Qualify(table, f.Schema, quote)
}

func grants(f Facts) []Finding {
	if f.Schema == "" || f.Have == 0 && f.Unread == nil {
		return nil
	}
	var list []Finding
	if f.NoUsage {
		list = append(list, finding(Problem, fmt.Sprintf("%q may not use the schema", f.User),
			"GRANT USAGE ON SCHEMA "+schema.QuotePostgres(f.Schema)+" TO "+f.account()))
	}
	for _, t := range f.Tables {
		if len(t.Lacks) == 0 || t.Missing {
			continue
		}
		lacks := strings.Join(t.Lacks, ", ")
		list = append(list, finding(Problem, fmt.Sprintf("%q lacks %s on %s", f.User, lacks, t.Name),
			"GRANT "+lacks+" ON "+f.qualified(t.Name)+" TO "+f.account()))
	}
	return orFine(list, "the user may do all that a service needs")
}

func (f Facts) account() string {
	if f.postgres() {
		return schema.QuotePostgres(f.User)
	}
	return schema.QuoteMySQLAccount(f.User)
}

// oneLine is an error for a table.
func oneLine(err error) string { return strings.Join(strings.Fields(plain(err)), " ") }

const (
	pathCheck = "search_path"
	otherPath = "ALTER ROLE … SET search_path = …, or ALTER DATABASE … SET search_path = …, without pg_catalog: it is searched first then"
)

// searchPath reports a path along which dblock's own statements would find what other roles
// planted, and roles that can plant operators and functions for the host's statements to find.
func searchPath(f Facts) []Finding {
	if !f.postgres() {
		return nil
	}
	var list []Finding
	if err := postgres.CheckSearchPath(f.SearchPath); err != nil {
		list = append(list, finding(Problem, oneLine(err), otherPath))
	}
	for _, c := range f.Creators {
		list = append(list, finding(Warning,
			fmt.Sprintf("%s may create objects in the schema %q, which is on the search_path: statements of this user may find an operator or a function that they planted", c.Role, c.Schema),
			fmt.Sprintf("REVOKE CREATE ON SCHEMA %s FROM %s; or ALTER ROLE %s SET search_path = …", schema.QuotePostgres(c.Schema), c.quoted(), schema.QuotePostgres(f.User))))
	}
	return orFine(list, "only owners may create objects on the search_path")
}

func (c Creator) quoted() string {
	if c.Role == "PUBLIC" {
		return c.Role
	}
	return schema.QuotePostgres(c.Role)
}
