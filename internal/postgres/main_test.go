package postgres_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m, devdb.Postgres) }
