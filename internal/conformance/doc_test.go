package conformance_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPromisesAreListed compares the promises in each suite's doc with its tests: the keys of its
// tables of tests, methods that are tests, the subtests and the top-level tests.
func TestPromisesAreListed(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"lock", "session", "queue", "inventory", "optimistic", "answers"} {
		files := map[string]string{ // of tests that one driver has
			"session": "../../pglock/session_waits_test.go", "queue": "../../queue/pgqueue/notify_test.go",
		}
		tests, texts := testsOf(t, append([]string{dir + "/*.go"}, strings.Fields(files[dir])...)...)
		for _, common := range []string{"suite/*.go", "lock/*.go"} { // session locks have tests of leases
			_, more := testsOf(t, common)
			maps.Copy(texts, more)
		}
		doc := parseFile(t, filepath.Join(dir, "doc.go")).Doc.Text()
		listed := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^ +- ([A-Z][\w']+): [^:]+\.$`).FindAllStringSubmatch(joined(doc), -1) {
			if listed[m[1]] = true; !texts[m[1]] {
				t.Errorf("%s/doc.go lists %s, and no test has that name", dir, m[1])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(tests)) {
			if !listed[name] {
				t.Errorf("%s/doc.go does not list %s", dir, name)
			}
		}
		if len(listed) == 0 {
			t.Errorf("%s/doc.go lists nothing", dir)
		}
	}
}

// joined has each list item in one line.
func joined(doc string) string { return regexp.MustCompile(`\n {4}(\w)`).ReplaceAllString(doc, " $1") }

func parseFile(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// testsOf are a suite's tests. texts are these, its functions, types, and strings with a name.
func testsOf(t *testing.T, patterns ...string) (tests, texts map[string]bool) {
	t.Helper()
	var files []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	tests, texts = map[string]bool{}, map[string]bool{}
	for _, file := range files {
		ast.Inspect(parseFile(t, file), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				texts[n.Name.Name] = true
			case *ast.FuncDecl:
				texts[n.Name.Name] = true
				name := n.Name.Name
				if strings.HasPrefix(name, "Test") && name != "TestMain" && strings.HasSuffix(file, "_test.go") || isMethod(n) && isTest(n.Type) {
					tests[name] = true
				}
			case *ast.BasicLit:
				if name, ok := nameIn(n); ok {
					texts[name] = true
				}
			case *ast.CompositeLit:
				if m, ok := n.Type.(*ast.MapType); ok && isTest(m.Value) {
					for _, e := range n.Elts {
						if name, ok := nameIn(e.(*ast.KeyValueExpr).Key); ok {
							tests[name] = true
						}
					}
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Run" && len(n.Args) == 2 {
					if name, ok := nameIn(n.Args[0]); ok {
						tests[name] = true
					}
				}
			}
			return true
		})
	}
	return tests, texts
}

// isMethod reports an exported method of an unexported type: suites find tests among these.
func isMethod(f *ast.FuncDecl) bool {
	if f.Recv == nil || !f.Name.IsExported() {
		return false
	}
	of := f.Recv.List[0].Type
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	name, ok := of.(*ast.Ident)
	return ok && !name.IsExported()
}

// isTest finds a test of a table by its parameters: *testing.T, or the fixture alone.
func isTest(e ast.Expr) bool {
	f, ok := e.(*ast.FuncType)
	if !ok || f.Results != nil || len(f.Params.List) == 0 {
		return false
	}
	_, ok = f.Params.List[0].Type.(*ast.StarExpr)
	return ok
}

// nameIn is the name in a string that begins with one, before a slash.
func nameIn(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	name, _, _ := strings.Cut(text, "/")
	return name, err == nil && regexp.MustCompile(`^[A-Z][\w']+$`).MatchString(name)
}
