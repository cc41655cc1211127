package migrations_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/migrations"
)

// envWriteObjects has TestObjects write the manifests, as `make generate` does.
const envWriteObjects = "DBLOCK_WRITE_OBJECTS"

// TestObjects makes the manifest of the engine from a fresh database, version by version, and
// compares it with the embedded one. So each server of an engine has the same.
func TestObjects(t *testing.T) {
	each(t, func(e env) {
		e.must(migrations.UpUnchecked(t.Context(), e.db))
		type span struct {
			from, until int64
			object      schema.Object
			is          string
		}
		open := map[schema.Object]span{}
		var list []span
		above := schema.Shape{}
		for version := schema.Version; version >= 0; version-- {
			_, err := migrations.DownTo(t.Context(), e.db, version, migrations.Options{})
			e.must(err)
			shape, err := migrations.Objects(t.Context(), e.db, "")
			e.must(err)
			for o, s := range open {
				if is, found := shape[o]; !found || is != s.is {
					s.from = version + 1
					list = append(list, s)
					delete(open, o)
				}
			}
			for o, is := range shape {
				if _, found := open[o]; !found {
					until := version + 1
					if version == schema.Version {
						until = 0
					}
					open[o] = span{0, until, o, is}
				}
			}
			above = shape
		}
		if len(above) > 0 {
			t.Errorf("after all was undone there is still %v", above)
		}
		slices.SortFunc(list, func(a, b span) int {
			return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.object.Table, b.object.Table), cmp.Compare(a.object.Kind, b.object.Kind),
				cmp.Compare(a.object.Name, b.object.Name))
		})
		var made strings.Builder
		for _, s := range list {
			made.WriteString(schema.ManifestLine(s.from, s.until, s.object, s.is))
		}
		file := filepath.Join("..", "internal", "schema", "objects", string(e.engine)+".txt")
		if os.Getenv(envWriteObjects) != "" {
			e.must(os.WriteFile(file, []byte(made.String()), 0o644))
			return
		}
		embedded, err := os.ReadFile(file)
		e.must(err)
		if string(embedded) != made.String() {
			t.Errorf("%s is not what the migrations make: run make generate; it would be\n%s", file, &made)
		}
	})
}

// TestStatementsAreUnderstood: of a statement that is not, a run that was cut off there could not
// go on.
func TestStatementsAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, engine := range []migrations.Engine{migrations.Postgres, migrations.MySQL} {
		list, err := migrations.Known(engine)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if err := migrations.ParseStatements(engine, m.Name); err != nil {
				t.Errorf("%s: %s: %v", engine, m.Name, err)
			}
		}
	}
}
