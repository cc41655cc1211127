package migrations_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/migrations"
)

// On MySQL each statement stands by itself: wherever a run ended, before it recorded the version,
// the next one completes it.
func TestUnfinished(t *testing.T) {
	each(t, func(e env) {
		if e.engine != migrations.MySQL {
			return // a migration is one transaction there
		}
		e.up(migrations.Options{})
		want := e.dump()
		names, err := fs.Glob(migrations.Files(migrations.MySQL, ""), "*.sql")
		e.must(err)
		for version := schema.Version; version > 0; version-- {
			up, down := e.statements(names[version-1])
			_, err := migrations.DownTo(e.Context(), e.db, version, migrations.Options{})
			e.must(err)
			above := e.dump()
			_, err = migrations.Down(e.Context(), e.db, migrations.Options{})
			e.must(err)
			below := e.dump()
			for n := range len(up) + 1 {
				e.partly(up[:n])
				e.toVersion(version)
				e.wantDump(fmt.Sprintf("up to %d from the %d. statement on", version, n+1), above)
				if n <= len(down) {
					e.partly(down[:n])
				}
				_, err := migrations.Down(e.Context(), e.db, migrations.Options{})
				e.must(err)
				e.wantDump(fmt.Sprintf("down from %d from the %d. statement on", version, n+1), below)
			}
		}
		e.up(migrations.Options{})
		e.wantDump("all", want)
	})
}

// toVersion migrates up, and then down to a version.
func (e env) toVersion(version int64) {
	e.Helper()
	e.up(migrations.Options{})
	_, err := migrations.DownTo(e.Context(), e.db, version, migrations.Options{})
	e.must(err)
}

// partly runs statements as a migration does that ends before its version is recorded.
func (e env) partly(statements []string) {
	e.Helper()
	for _, s := range statements {
		e.exec(s)
	}
}

// statements are those of a migration, both ways.
func (e env) statements(name string) (up, down []string) {
	e.Helper()
	text, err := fs.ReadFile(migrations.Files(migrations.MySQL, ""), name)
	e.must(err)
	before, after, found := strings.Cut(string(text), "-- +goose Down\n")
	if !found {
		e.Fatalf("%s has no way down", name)
	}
	split := func(text string) []string {
		return slices.DeleteFunc(strings.SplitAfter(text, ";\n"), func(s string) bool { return strings.TrimSpace(s) == "" })
	}
	return split(before), split(after)
}
