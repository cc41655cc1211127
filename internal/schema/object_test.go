package schema_test

import (
	"slices"
	"testing"

	"github.com/dblock-go/dblock/internal/schema"
)

func TestShapes(t *testing.T) {
	t.Parallel()
	want := schema.Shape{
		{"a", schema.Column, "id"}: "bigint", {"a", schema.Column, "n"}: "int", {"a", schema.Index, "i"}: "id",
		{"b", schema.Column, "id"}: "bigint", {"b", schema.Column, "n"}: "int",
	}
	have := schema.Shape{{"a", schema.Column, "id"}: "bigint", {"a", schema.Column, "n"}: "bigint", {"c", schema.Column, "id"}: "int"}
	if got, missing := want.Differences(have), []string{`index a.i is missing`, `column a.n is "bigint" instead of "int"`, `table b is missing`}; !equalSets(got, missing) {
		t.Errorf("got %q, want %q", got, missing)
	}
	if got := want.Missing(have); len(got) != 3 || got[0] != (schema.Object{Table: "a", Kind: schema.Index, Name: "i"}) {
		t.Errorf("missing: %v", got)
	}
	check := schema.Object{Table: "a", Kind: schema.Limit, Name: "c"}
	laxer, validated := schema.Shape{check: "CHECK (n > 0) NOT VALID"}, schema.Shape{check: "CHECK (n > 0)"}
	if d := laxer.Differences(validated); len(d) > 0 || len(validated.Differences(laxer)) != 1 {
		t.Errorf("a validated CHECK is a difference: %q, or one that is not is none", d)
	}
	renamed := schema.Object{Table: "a", Kind: schema.Limit, Name: "a_chk_1"}
	for is, differences := range map[string]int{"n > 0": 0, "CHECK (n > 0)": 1} { // on MySQL, and on Postgres
		if d := (schema.Shape{check: is}).Differences(schema.Shape{renamed: is}); len(d) != differences {
			t.Errorf("%s under another name: %q", is, d)
		}
	}
	unsafe := schema.Shape{{"b", schema.Unsafe, "engine"}: "no engine", {"c", schema.Unsafe, "engine"}: "no engine", {"b", schema.Column, "id"}: "bigint"}
	if d := (schema.Shape{{"b", schema.Column, "id"}: "bigint"}).Differences(unsafe); len(d) != 1 || d[0] != "table b has no engine" {
		t.Errorf("of an unsafe table of its own and one of others: %q", d)
	}
	if len(want.Differences(want)) > 0 || len(want.Of("b")) != 2 || want.HasTable("c") || !have.Has(schema.Object{Table: "c"}) {
		t.Error("a shape differs from itself, or has another's tables")
	}
}

func equalSets(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// TestEveryTableIsInTheManifests: what a service may use is known to the last column.
func TestEveryTableIsInTheManifests(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{schema.Postgres, schema.MySQL} {
		shape := schema.Expected(engine, schema.Version)
		for _, table := range schema.Tables() {
			if !shape.HasTable(table) {
				t.Errorf("%s: nothing of %s is in the manifest: run make generate", engine, table)
			}
		}
		if len(schema.Expected(engine, 0)) > 0 {
			t.Errorf("%s: version 0 has objects", engine)
		}
	}
}
