package dblock_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The architecture, held by parsing the imports: a test that ran `go list` could be answered from
// the test cache after a rule was broken.

const module = "github.com/dblock-go/dblock"

// packages lists every folder with Go files, top to bottom. A package imports only packages below
// its own line; packages of one line do not import each other.
var packages = [][]string{
	{"cmd/dblock"},
	{"bench"},
	{"internal/conformance", "internal/faultmatrix", "internal/programs"},
	{"internal/conformance/session", "internal/conformance/queue", "internal/conformance/inventory", "internal/conformance/optimistic"},
	{"internal/conformance/lock"},
	{"internal/conformance/answers"},
	{"internal/conformance/suite"},
	{"internal/testdb"},
	{"dblocktest", "internal/locksim"},
	{"inventory/pginventory", "inventory/mysqlinventory", "queue/pgqueue", "queue/mysqlqueue", "optimistic/pgoptimistic",
		"optimistic/mysqloptimistic"},
	{"pglock", "mysqllock", "internal/memlease"},
	{"migrations", "internal/devdb"},
	{"internal/sale", "internal/orders", "internal/doctor"},
	{"inventory/internal/link", "queue/internal/link", "optimistic/internal/link"},
	{"inventory", "queue", "optimistic"},
	{"inventory/internal/driver", "queue/internal/driver", "optimistic/internal/driver",
		"optimistic/internal/attempt", "internal/lease", "internal/session",
		"internal/postgres", "internal/mysql"},
	{"internal/member", "internal/retry"},
	{"db/pgdb", "db/mysqldb", "internal/migratelock"},
	{"internal/rowlock", "internal/batch", "internal/faultconn"},
	{"internal/sqlerr"},
	{"internal/schema"},
	{"internal/root"},
	{"."},
	{"internal/callback", "internal/clock", "internal/contract", "internal/guardian", "internal/keyname", "internal/pace",
		"internal/sqlconn"},
	{"internal/ctxerr"},
}

// drivers says which packages may import a database driver, and which one.
var drivers = map[string][]string{
	"github.com/jackc/pgx/": {
		"db/pgdb", "internal/postgres", "internal/doctor", "inventory/pginventory", "queue/pgqueue", "optimistic/pgoptimistic", "pglock", "migrations", "internal/migratelock", "internal/devdb", "internal/faultconn",
		"internal/testdb", "cmd/dblock", "bench",
		"internal/conformance/answers", "internal/conformance/suite", "internal/conformance/queue",
	},
	"github.com/go-sql-driver/": {
		"internal/mysql", "internal/doctor", "inventory/mysqlinventory", "queue/mysqlqueue", "optimistic/mysqloptimistic", "mysqllock", "migrations", "internal/migratelock", "internal/devdb", "internal/faultconn",
		"internal/testdb", "cmd/dblock", "bench",
		"internal/conformance/answers", "internal/conformance/suite", "internal/conformance/inventory",
	},
}

// heavy says which packages may import what a service that embeds dblock should not have to carry.
var heavy = map[string][]string{
	"github.com/pressly/goose/":         {"migrations", "internal/migratelock", "internal/conformance/answers"},
	"github.com/alecthomas/kong":        {"cmd/dblock"},
	"github.com/schollz/progressbar/":   {"cmd/dblock"},
	"github.com/HdrHistogram/":          {"internal/sale", "bench", "cmd/dblock"},
	"github.com/agnivade/levenshtein":   {"bench"},
	"github.com/testcontainers/":        testOnly,
	"go.uber.org/goleak":                testOnly,
	"github.com/google/go-cmp/":         testOnly,
	"github.com/anishathalye/porcupine": testOnly,
	"github.com/stretchr/testify":       testOnly,
	"pgregory.net/rapid":                testOnly,
	"testing":                           append([]string{"dblocktest"}, testOnly...),
	module + "/dblocktest":              testOnly,
	module + "/internal/contract":       {".", "internal/root"},
	module + "/internal/memlease":       {"dblocktest", "internal/conformance/answers"},
	module + "/internal/testdb":         testOnly,
	module + "/internal/conformance":    testOnly,
	module + "/internal/faultconn":      testOnly,
}

// testOnly are the packages that only test files import.
var testOnly = []string{
	"internal/testdb", "internal/conformance", "internal/conformance/lock", "internal/conformance/session", "internal/conformance/queue",
	"internal/conformance/inventory", "internal/conformance/optimistic", "internal/conformance/answers", "internal/conformance/suite",
	"internal/faultmatrix", "internal/locksim", "internal/programs",
	"internal/faultconn",
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	level := map[string]int{}
	for i, line := range packages {
		for _, pkg := range line {
			level[pkg] = i
		}
	}
	eachImport(t, func(file, pkg, imported string, isTest bool) {
		from, known := level[pkg]
		if !known {
			t.Errorf("%s: the package %q is not in this test's list", file, pkg)
			return
		}
		target, ours := strings.CutPrefix(imported, module)
		if !ours || isTest {
			return
		}
		target = strings.TrimPrefix(target, "/")
		if target == "" {
			target = "."
		}
		if to, known := level[target]; !known || to <= from {
			t.Errorf("%s imports %s, which is not below it", file, imported)
		}
	})
}

func TestOnlyTheirPackagesImportADriver(t *testing.T) {
	t.Parallel()
	only(t, drivers)
}

func TestWhatServicesEmbedStaysLean(t *testing.T) {
	t.Parallel()
	only(t, heavy)
}

// only checks that what is listed is imported by the packages it allows, or by tests.
func only(t *testing.T, allowed map[string][]string) {
	eachImport(t, func(file, pkg, imported string, isTest bool) {
		for prefix, by := range allowed {
			if strings.HasPrefix(imported, prefix) && !isTest && !slices.Contains(by, pkg) {
				t.Errorf("%s imports %s", file, imported)
			}
		}
	})
}

// eachImport calls f with every import of every Go file of the module.
func eachImport(t *testing.T, f func(file, pkg, imported string, isTest bool)) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (file == "bench/peers" || file == "examples"): // modules of their own
			return filepath.SkipDir
		case d.IsDir() && (d.Name() == "tools" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && d.Name() != "."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(file) != ".go":
			return nil
		}
		files++
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f(file, path.Dir(filepath.ToSlash(file)), imported, strings.HasSuffix(file, "_test.go"))
		}
		return nil
	})
	if err != nil || files < 50 {
		t.Fatalf("read %d files, %v", files, err)
	}
}

// TestEnginesAreTwins: what one engine's package lacks shows in its list of files.
func TestEnginesAreTwins(t *testing.T) {
	t.Parallel()
	for _, twins := range [][2]string{
		{"inventory/pginventory", "inventory/mysqlinventory"},
		{"queue/pgqueue", "queue/mysqlqueue"},
		{"optimistic/pgoptimistic", "optimistic/mysqloptimistic"},
		{"pglock", "mysqllock"},
		{"queries/postgres", "queries/mysql"},
		{"migrations/postgres", "migrations/mysql"},
	} {
		one, other := shared(t, twins[0]), shared(t, twins[1])
		if !slices.Equal(one, other) {
			t.Errorf("%s has %v, %s has %v", twins[0], one, twins[1], other)
		}
	}
}

// alone lists what only one engine has, and why.
var alone = map[string][]string{
	"queue/mysqlqueue": {
		"groups.go", // jobs are admitted to groups by several statements
	},
	"pglock": {
		"locktx.go",    // the advisory locks that end with a transaction
		"sqltx.go",     // a transaction is pgx's or database/sql's
		"savepoint.go", // a refusal fails the transaction, unless a savepoint stands before it
		"view.go",      // the look at a table goes with the statement that locks
	},
	"mysqllock": {
		"make.go",         // missing rows are made by a statement of their own
		"scan.go",         // for want of an index rows are locked that are not returned
		"sessionwatch.go", // the server sends no notification of a release
	},
}

// shared are the names of a package that its twin has, too.
func shared(t *testing.T, dir string) []string {
	t.Helper()
	all := names(t, dir)
	for _, name := range alone[dir] {
		if !slices.Contains(all, name) {
			t.Errorf("%s has no %s any more: strike it off the list", dir, name)
		}
	}
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(alone[dir], name) })
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(dir + "/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(files), err)
	}
	var names []string
	for _, file := range files {
		name := filepath.Base(file)
		switch {
		case strings.HasSuffix(name, "_test.go"), name == "testdata":
			continue
		case name == path.Base(dir)+".go": // the package's own file is named for it
			name = "(package).go"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
