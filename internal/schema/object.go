package schema

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The engines, as the manifests and migrations name them.
const (
	Postgres = "postgres"
	MySQL    = "mysql"
)

// The kinds of objects.
const (
	Column = "column"
	Index  = "index"
	Limit  = "check"  // a CHECK
	Unsafe = "unsafe" // what dblock's tables must not have; never in a manifest
)

// notValid ends a CHECK that Postgres has not checked all rows against. Its owner may validate it.
const notValid = " NOT VALID"

// Object names a part of a table. Without a kind and a name it is the table itself.
type Object struct{ Table, Kind, Name string }

// String is the object's name for people.
func (o Object) String() string {
	if o.Name == "" {
		return "table " + o.Table
	}
	return o.Kind + " " + o.Table + "." + o.Name
}

func (o Object) compare(p Object) int {
	return cmp.Or(cmp.Compare(o.Table, p.Table), cmp.Compare(o.Kind, p.Kind), cmp.Compare(o.Name, p.Name))
}

// Shape is what tables are made of: each object's definition, in words that are the same on each
// server of an engine.
type Shape map[Object]string

// HasTable reports whether the shape has anything of a table.
func (s Shape) HasTable(table string) bool {
	for o := range s {
		if o.Table == table {
			return true
		}
	}
	return false
}

// Has reports whether the shape has an object, or a table.
func (s Shape) Has(o Object) bool {
	if o.Name == "" {
		return s.HasTable(o.Table)
	}
	_, found := s[o]
	return found
}

// Of returns the part of the shape that is one table's.
func (s Shape) Of(table string) Shape {
	part := Shape{}
	for o, is := range s {
		if o.Table == table {
			part[o] = is
		}
	}
	return part
}

// Missing lists the objects that the shape has and another lacks, in order.
func (s Shape) Missing(in Shape) []Object {
	var list []Object
	for o := range s {
		if !in.Has(o) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, Object.compare)
	return list
}

// Differences says in words what another shape lacks of this one, or has otherwise, and what it has
// that is unsafe. All else that it has beyond is the owner's own.
func (s Shape) Differences(in Shape) []string {
	var list []string
	for _, o := range slices.SortedFunc(maps.Keys(s), Object.compare) {
		is, found := in[o]
		switch {
		case !in.HasTable(o.Table):
			list = append(list, Object{Table: o.Table}.String()+" is missing")
		case !found && in.hasAlike(o, s[o]):
		case !found:
			list = append(list, o.String()+" is missing")
		case is != s[o] && (o.Kind != Limit || is != strings.TrimSuffix(s[o], notValid)):
			list = append(list, fmt.Sprintf("%s is %q instead of %q", o, is, s[o]))
		}
	}
	for _, o := range slices.SortedFunc(maps.Keys(in), Object.compare) {
		if o.Kind == Unsafe && s.HasTable(o.Table) {
			list = append(list, Object{Table: o.Table}.String()+" has "+in[o])
		}
	}
	return slices.Compact(list)
}

// hasAlike reports whether a table has a CHECK under another name. Tools that copy a table on MySQL
// name the CHECKs of the copy anew. On Postgres dblock finds out by the name which CHECK has
// failed; the definitions begin with that word there.
func (s Shape) hasAlike(o Object, is string) bool {
	if o.Kind != Limit || strings.HasPrefix(is, "CHECK ") {
		return false
	}
	for other, has := range s {
		if other.Table == o.Table && other.Kind == Limit && has == is {
			return true
		}
	}
	return false
}

// manifests hold the objects of each version. A test of package migrations makes them from fresh
// databases.
//
//go:embed objects/*.txt
var manifests embed.FS

// entry is a line of a manifest: an object, from one version on until before another (0: none).
type entry struct {
	from, until int64
	object      Object
	is          string
}

var entries = map[string]func() []entry{
	Postgres: sync.OnceValue(func() []entry { return readManifest(Postgres) }),
	MySQL:    sync.OnceValue(func() []entry { return readManifest(MySQL) }),
}

// readManifest panics on a line that the test would not have written.
func readManifest(engine string) []entry {
	text, err := manifests.ReadFile("objects/" + engine + ".txt")
	if err != nil {
		panic(err)
	}
	var list []entry
	for line := range strings.Lines(string(text)) {
		word := strings.SplitN(strings.TrimRight(line, "\n"), " ", 5)
		from, until, found := strings.Cut(word[0], "-")
		e := entry{object: Object{Kind: word[1], Table: word[2], Name: word[3]}, is: word[4]}
		if e.from, err = strconv.ParseInt(from, 10, 64); err == nil && found && until != "" {
			e.until, err = strconv.ParseInt(until, 10, 64)
		}
		if err != nil {
			panic(fmt.Sprintf("manifest of %s: %q: %v", engine, line, err))
		}
		list = append(list, e)
	}
	return list
}

// ManifestLine is a line of a manifest.
func ManifestLine(from, until int64, o Object, is string) string {
	span := fmt.Sprintf("%d-", from)
	if until > 0 {
		span += strconv.FormatInt(until, 10)
	}
	return fmt.Sprintf("%s %s %s %s %s\n", span, o.Kind, o.Table, o.Name, is)
}

// Expected returns what dblock's tables have at a version, by the manifest of the engine.
func Expected(engine string, version int64) Shape {
	shape := Shape{}
	for _, e := range entries[engine]() {
		if e.from <= version && (e.until == 0 || version < e.until) {
			shape[e.object] = e.is
		}
	}
	return shape
}
