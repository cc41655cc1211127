package migrations_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/migrations"
)

// TestTablesOfOthers: a table that another program made under one of dblock's names is refused
// before anything is written, wherever in the migrations it is.
func TestTablesOfOthers(t *testing.T) {
	each(t, func(e env) {
		for _, table := range []string{"dblock_stock", "dblock_queue"} {
			e.exec("CREATE TABLE " + table + " (id INT PRIMARY KEY, own INT)")
			_, err := migrations.Up(e.Context(), e.db, migrations.Options{})
			if !errors.Is(err, dblock.ErrSchema) || !strings.Contains(err.Error(), "table "+table) || !strings.Contains(err.Error(), "rename it") {
				e.Errorf("%s: got %v, want ErrSchema that names the table", table, err)
			}
			e.wantTables("", slices.Sorted(slices.Values([]string{table, schema.VersionTable})))
			e.wantVersions(schema.VersionTable, map[int64]int{0: 1})
			e.exec("DROP TABLE " + table)
		}
		e.up(migrations.Options{}) // the control
	})
}

// TestUpRepairs: what is recorded and missing is created again, to the last index, and Up says so.
func TestUpRepairs(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		fresh := e.dump()
		damage := []string{"DROP TABLE dblock_lease", "ALTER TABLE dblock_lease DROP COLUMN shared", "DROP TABLE dblock_queue_dead",
			"DROP TABLE dblock_quota", "DROP TABLE dblock_stock", "DROP INDEX dblock_reservation_sku"}
		if e.engine == migrations.MySQL {
			damage[len(damage)-1] += " ON dblock_reservation"
		}
		for _, statement := range damage {
			e.exec(statement)
			if list := e.up(migrations.Options{}); len(list) == 0 {
				e.Errorf("after %s Up said that there was nothing to do", statement)
			}
			e.wantDump(statement, fresh)
			e.wantApplied(migrations.Options{})
		}
		for _, statement := range damage {
			if !strings.Contains(statement, "dblock_lease DROP") { // the table is gone already
				e.exec(statement)
			}
		}
		e.up(migrations.Options{})
		e.wantDump("all at once", fresh)
		e.wantVersions(schema.VersionTable, everyVersion())
	})
}

// TestUpNamesWhatItCannotRepair: it never alters what is there.
func TestUpNamesWhatItCannotRepair(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		alter := "ALTER TABLE dblock_fence MODIFY token INT NOT NULL"
		if e.engine == migrations.Postgres {
			alter = "ALTER TABLE dblock_fence ALTER COLUMN token TYPE integer"
		}
		e.exec(alter)
		e.exec("ALTER TABLE dblock_stock DROP COLUMN epoch")
		before := e.dump()
		_, err := migrations.Up(e.Context(), e.db, migrations.Options{})
		if !errors.Is(err, dblock.ErrSchema) || !strings.Contains(err.Error(), "dblock_fence.token") || !strings.Contains(err.Error(), "dblock_stock.epoch") {
			e.Errorf("got %v, want ErrSchema that names both columns", err)
		}
		e.wantDump("Up", before)
		// What an owner adds is the owner's.
		e.exec("DROP TABLE dblock_fence")
		e.exec("DROP TABLE dblock_stock")
		e.up(migrations.Options{})
		e.exec("ALTER TABLE dblock_stock ADD COLUMN own INT")
		e.wantApplied(migrations.Options{})
	})
}

// TestUpNamesUnsafeTables: what makes a nil error untrue is named, and left to the owner.
func TestUpNamesUnsafeTables(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		says, makeSafe := "table dblock_stock has the storage engine MyISAM instead of InnoDB", "ALTER TABLE dblock_stock ENGINE = InnoDB"
		if e.engine == migrations.Postgres {
			e.exec("CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
			e.exec("CREATE TRIGGER skips BEFORE UPDATE ON dblock_stock FOR EACH ROW EXECUTE FUNCTION skip()")
			says, makeSafe = `table dblock_stock has the trigger "skips"`, "DROP TRIGGER skips ON dblock_stock"
		} else {
			e.exec("ALTER TABLE dblock_stock ENGINE = MyISAM")
		}
		before := e.dump()
		if _, err := migrations.Up(e.Context(), e.db, migrations.Options{}); !errors.Is(err, dblock.ErrSchema) || !strings.Contains(err.Error(), says) {
			e.Errorf("got %v, want ErrSchema that says %s", err, says)
		}
		e.wantDump("Up", before)
		e.exec(makeSafe)
		e.wantApplied(migrations.Options{})
	})
}

// TestUpWithoutRecords: the table of versions was dropped, and the others are there. Up records
// them again on MySQL and MariaDB. On Postgres, where a cut-off run leaves no such tables, its
// error has the statement that does.
func TestUpWithoutRecords(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		e.exec("DROP TABLE dblock_schema_version")
		_, err := migrations.Up(e.Context(), e.db, migrations.Options{})
		if e.engine == migrations.Postgres {
			_, insert, found := strings.Cut(fmt.Sprint(err), "run up again: ")
			if !errors.Is(err, dblock.ErrSchema) || !found || !strings.Contains(err.Error(), "dblock_schema_version records no version") {
				e.Fatalf("got %v, want ErrSchema with a statement", err)
			}
			e.exec(insert)
		} else {
			e.must(err)
		}
		e.wantApplied(migrations.Options{})
		e.wantVersions(schema.VersionTable, everyVersion())
	})
}

// TestStatusShowsWhatWasBegun: a migration that was cut off is neither applied nor still to come.
func TestStatusShowsWhatWasBegun(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		e.exec("UPDATE dblock_schema_version SET is_applied = false WHERE version_id = 8")
		for _, m := range e.status(migrations.Options{}) {
			if begun := m.Version == 8; m.Begun != begun || m.Applied == begun {
				e.Errorf("%+v", m)
			}
		}
		if list := e.up(migrations.Options{}); len(list) != 1 || list[0].Version != 8 {
			e.Errorf("Up completed %+v, want version 8", list)
		}
		e.wantApplied(migrations.Options{})
	})
}
