package migrations_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/migrations"
)

// TestStorageEngine: on MySQL and MariaDB all tables are in InnoDB, whatever the default is, and Up
// refuses a table of versions in another engine.
func TestStorageEngine(t *testing.T) {
	each(t, func(e env) {
		if e.engine == migrations.Postgres {
			return
		}
		db := e.open(suite.Appended("default_storage_engine=MyISAM")(e.T, e.dsn))
		_, err := migrations.Up(e.Context(), db, migrations.Options{})
		e.must(err)
		engines := e.strings("SELECT DISTINCT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()")
		if !slices.Equal(engines, []string{"InnoDB"}) {
			e.Errorf("the tables are in %v", engines)
		}
		e.exec("ALTER TABLE dblock_schema_version ENGINE = MyISAM")
		_, err = migrations.Up(e.Context(), e.db, migrations.Options{})
		if !errors.Is(err, dblock.ErrSchema) || !strings.Contains(err.Error(), "MyISAM") {
			e.Errorf("Up: %v", err)
		}
	})
}
