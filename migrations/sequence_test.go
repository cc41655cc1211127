package migrations_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// TestSequenceBehindItsTable: logical replication, or a restore of data alone, copies the rows of
// the table of versions and not where its sequence is.
func TestSequenceBehindItsTable(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	for range 2 {
		if _, err := migrations.Down(t.Context(), pool, migrations.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), "SELECT setval('dblock_schema_version_id_seq', 1, false)"); err != nil {
		t.Fatal(err)
	}
	if applied, err := migrations.Up(t.Context(), pool, migrations.Options{}); err != nil || len(applied) != 2 {
		t.Errorf("applied %v, %v", applied, err)
	}
}
