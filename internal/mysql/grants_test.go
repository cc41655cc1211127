package mysql_test

import (
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// TestEachGrantIsNeeded: an account with the documented grants may run every statement. Without any
// one of them at least one statement is refused. The server checks rights when it prepares.
func TestEachGrantIsNeeded(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			eachGrantIsNeeded(t, testdb.MySQLOn(t, kind), testdb.DSN(t, kind))
		})
	}
}

func eachGrantIsNeeded(t *testing.T, owner *sql.DB, dsn string) {
	if _, err := migrations.Up(t.Context(), owner, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	config, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&config.DBName); err != nil {
		t.Fatal(err)
	}
	do := func(statement string) {
		t.Helper()
		if _, err := owner.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
	config.User, config.Passwd = "s"+strings.TrimPrefix(config.DBName, "dblock_"), "Only-f0r-a-test"
	account := schema.QuoteMySQLAccount(config.User)
	do("CREATE USER " + account + " IDENTIFIED BY '" + config.Passwd + "'")
	t.Cleanup(func() { _, _ = owner.Exec("DROP USER " + account) })
	for _, grant := range schema.MySQLServiceGrants(config.DBName, config.User) {
		do(grant)
	}
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	prepare := func(statement string) error {
		prepared, err := db.PrepareContext(t.Context(), statement)
		if err == nil {
			_ = prepared.Close()
		}
		return err
	}
	statements := generatedStatements(t)
	for name, statement := range statements {
		if err := prepare(statement); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, table := range append(schema.Tables(), schema.VersionTable) {
		whole := regexp.MustCompile(`\b` + table + `\b`)
		for _, right := range schema.Rights(schema.MySQL, table) {
			do(fmt.Sprintf("REVOKE %s ON %s FROM %s", right, table, account))
			needed := false
			for _, statement := range statements {
				if whole.MatchString(statement) && mysql.Classify(prepare(statement)) == sqlerr.NotPermitted {
					needed = true
					break
				}
			}
			if !needed {
				t.Errorf("no statement needs %s on %s", right, table)
			}
			do(fmt.Sprintf("GRANT %s ON %s TO %s", right, table, account))
		}
	}
}

// generatedStatements are those of db/mysqldb, by name.
func generatedStatements(t *testing.T) map[string]string {
	t.Helper()
	dir := filepath.Join("..", "..", "db", "mysqldb")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	statements := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, is := n.(*ast.ValueSpec); is && len(spec.Values) == 1 {
				if literal, is := spec.Values[0].(*ast.BasicLit); is && strings.HasPrefix(literal.Value, "`-- name: ") {
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					statements[spec.Names[0].Name] = text
				}
			}
			return true
		})
	}
	return statements
}
