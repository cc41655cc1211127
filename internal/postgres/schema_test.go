package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
)

// TestSchema: a statement is put together once, and then costs no memory.
func TestSchema(t *testing.T) {
	s := postgres.NewSchema(`a"b`)
	assert.Equal(t, `SELECT 1 FROM "a""b".dblock_lease`, s.SQL("SELECT 1 FROM dblock_lease"))
	assert.Equal(t, "SELECT 1 FROM dblock_lease", postgres.NewSchema("").SQL("SELECT 1 FROM dblock_lease"))
	want := s.SQL(pgdb.AcquireLease)
	allocs := testing.AllocsPerRun(100, func() {
		if s.SQL(pgdb.AcquireLease) != want {
			t.Error("a statement changes")
		}
	})
	assert.Zero(t, allocs)
}
