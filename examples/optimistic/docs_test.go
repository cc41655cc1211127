package examples

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// namesOfDocs declares what the Go code of the pages uses without declaring it.
const namesOfDocs = "testdata/docs/names.go"

// importsOfDocs are the packages that code in the pages names without an import.
var importsOfDocs = []string{
	"bytes", "context", "database/sql", "errors", "fmt", "log", "log/slog", "net/http", "net/http/httptest", "os", "testing", "time",
	"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool", "github.com/jackc/pgx/v5/stdlib",
	"github.com/pressly/goose/v3", "gorm.io/driver/mysql", "gorm.io/driver/postgres", "gorm.io/gorm",
	"github.com/dblock-go/dblock", "github.com/dblock-go/dblock/dblocktest", "github.com/dblock-go/dblock/migrations",
	"github.com/dblock-go/dblock/pglock", "github.com/dblock-go/dblock/mysqllock",
	"github.com/dblock-go/dblock/inventory", "github.com/dblock-go/dblock/inventory/pginventory", "github.com/dblock-go/dblock/inventory/mysqlinventory",
	"github.com/dblock-go/dblock/queue", "github.com/dblock-go/dblock/queue/pgqueue", "github.com/dblock-go/dblock/queue/mysqlqueue",
	"github.com/dblock-go/dblock/optimistic", "github.com/dblock-go/dblock/optimistic/pgoptimistic", "github.com/dblock-go/dblock/optimistic/mysqloptimistic",
	"github.com/dblock-go/dblock/examples/optimistic/ent", "github.com/dblock-go/dblock/examples/optimistic/ent/account",
	"github.com/dblock-go/dblock/examples/optimistic/pgaccount", "github.com/dblock-go/dblock/examples/optimistic/mysqlaccount",
}

// importsHidden are packages of importsOfDocs whose name another one has.
var importsHidden = map[string]bool{
	"github.com/go-sql-driver/mysql": true, "gorm.io/driver/mysql": true, "gorm.io/driver/postgres": true,
}

// TestDocsCompile type-checks each Go block of README.md and docs/. A block is a file that begins
// with its package clause, or declarations, or statements of a function that returns an error.
// Blocks of a page don't see each other's names.
func TestDocsCompile(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	check := &types.Config{Importer: importer.ForCompiler(files, "gc", exported(t))}
	names, err := parser.ParseFile(files, namesOfDocs, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, page := range pagesOfDocs(t) {
		for _, block := range blocksOf(t, page, "go") {
			blocks++
			parsed := []*ast.File{names}
			file, err := parseBlock(files, block)
			if err != nil {
				t.Errorf("%s:%d: %v\n%s", page, block.line, err, block.text)
				continue
			}
			if file.Name.Name == "docs" {
				parsed = append(parsed, file)
			} else {
				parsed = []*ast.File{file}
			}
			check.Error = func(err error) {
				if e := err.(types.Error); !e.Soft { // a fragment may declare what it does not use
					t.Errorf("%s:%d: %v\n%s", page, block.line, e.Msg, block.text)
				}
			}
			_, _ = check.Check("docs", files, parsed, nil)
		}
	}
	if blocks < 30 {
		t.Errorf("the pages have %d blocks of Go", blocks)
	}
}

// block is a fenced block of a page.
type block struct {
	line int
	text string
}

// parseBlock parses a block as a file, as declarations, or as statements.
func parseBlock(files *token.FileSet, b block) (*ast.File, error) {
	if strings.HasPrefix(b.text, "package ") {
		return parser.ParseFile(files, "block.go", b.text, parser.SkipObjectResolution)
	}
	var head strings.Builder
	head.WriteString("package docs\nimport (\n")
	for _, path := range importsOfDocs {
		if !importsHidden[path] {
			fmt.Fprintf(&head, "%q\n", path)
		}
	}
	head.WriteString(")\n")
	if file, err := parser.ParseFile(files, "block.go", head.String()+b.text, parser.SkipObjectResolution); err == nil {
		return file, nil
	}
	return parser.ParseFile(files, "block.go", head.String()+"func _() error {\n"+b.text+"\nreturn nil\n}\n", parser.SkipObjectResolution)
}

// pagesOfDocs are the files whose Go code is checked.
func pagesOfDocs(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	return append(pages, "../../README.md")
}

// blocksOf returns the blocks of a page in a language.
func blocksOf(t *testing.T, page, language string) (blocks []block) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var open *block
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case open == nil && line == "```"+language:
			open = &block{line: i + 2}
		case open != nil && line == "```":
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return blocks
}

// exported finds the export data of packages: go list compiles what is not compiled yet.
func exported(t *testing.T) importer.Lookup {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, importsOfDocs...)...)
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, found := strings.Cut(strings.TrimSpace(line), " "); found {
			exports[path] = file
		}
	}
	return func(path string) (io.ReadCloser, error) {
		file, known := exports[path]
		if !known {
			return nil, fmt.Errorf("package %q is not in importsOfDocs", path)
		}
		return os.Open(file)
	}
}

// TestDocsRun builds and runs the programs of the pages for beginners, and compares the end of
// their output with the block of text that follows. GORM's log of slow statements may stand before
// it.
func TestDocsRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		page string
		kind devdb.Kind
	}{
		{"start-postgres.md", devdb.Postgres}, {"start-mysql.md", devdb.MariaDB}, {"start-mysql.md", devdb.MySQL},
		{"start-gorm.md", devdb.Postgres},
	} {
		for _, kind := range testdb.Engines() {
			if kind != c.kind {
				continue
			}
			t.Run(c.page+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				program := blocksOf(t, "../../docs/"+c.page, "go")[0].text
				want := blocksOf(t, "../../docs/"+c.page, "text")[0].text
				source := filepath.Join(t.TempDir(), "main.go")
				if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
					t.Fatal(err)
				}
				run := exec.CommandContext(t.Context(), "go", "run", source)
				run.Env = append(os.Environ(), "DATABASE_URL="+testdb.DSN(t, kind))
				var stderr bytes.Buffer
				run.Stderr = &stderr
				if got, err := run.Output(); err != nil || !strings.HasSuffix(string(got), want) {
					t.Errorf("%v\n%s\nprinted\n%s\nwant\n%s", err, stderr.String(), got, want)
				}
			})
		}
	}
}
