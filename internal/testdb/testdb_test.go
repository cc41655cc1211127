package testdb_test

import (
	"context"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for _, name := range []string{"first", "second"} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					createTable(t, kind)
				})
			}
		})
	}
}

// createTable fails where the table exists already, that is, in a shared database.
func createTable(t *testing.T, kind devdb.Kind) {
	ctx := context.Background()
	var err error
	if kind == devdb.Postgres {
		_, err = testdb.Postgres(t).Exec(ctx, "CREATE TABLE t (a int)")
	} else {
		_, err = testdb.MySQLOn(t, kind).ExecContext(ctx, "CREATE TABLE t (a int)")
	}
	if err != nil {
		t.Fatal(err)
	}
}
