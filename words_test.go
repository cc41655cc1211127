package dblock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestErrorsSpeakPlainly reads the text of every error that the module makes. It begins in lower
// case, uses no word that the style of Vale bans, and is at most 120 characters long unless it
// carries data.
func TestErrorsSpeakPlainly(t *testing.T) {
	t.Parallel()
	banned, found := bannedWords(t), 0
	eachFile(t, func(files *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			text := errorText(n)
			if text == nil {
				return true
			}
			found++
			at := files.Position(n.Pos())
			whole := strings.Join(text, "")
			if word := banned.FindString(whole); word != "" {
				t.Errorf("%s: %q has the word %q", at, whole, word)
			}
			if !isLower(whole) || strings.HasSuffix(whole, ".") {
				t.Errorf("%s: %q does not begin in lower case, or ends with a full stop", at, whole)
			}
			if len(text) == 1 && !strings.Contains(whole, "%") && len(whole) > 120 {
				t.Errorf("%s: %q has %d characters", at, whole, len(whole))
			}
			return true
		})
	})
	if found < 500 {
		t.Errorf("found %d errors only", found)
	}
}

// TestHelpSpeaksPlainly reads the help of every command, flag and argument. It is whole sentences
// of at most 25 words, without banned words. That of a command has at most 120 characters.
func TestHelpSpeaksPlainly(t *testing.T) {
	t.Parallel()
	banned, commands, flags := bannedWords(t), 0, 0
	eachFile(t, func(files *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			help, isCommand := helpText(t, n)
			if help == "" {
				return true
			}
			at := files.Position(n.Pos())
			if isCommand {
				commands++
			} else {
				flags++
			}
			if isCommand && len(help) > 120 {
				t.Errorf("%s: %q has %d characters", at, help, len(help))
			}
			if word := banned.FindString(help); word != "" {
				t.Errorf("%s: %q has the word %q", at, help, word)
			}
			if first, _ := utf8.DecodeRuneInString(help); !unicode.IsUpper(first) || !strings.HasSuffix(help, ".") {
				t.Errorf("%s: %q is no sentence", at, help)
			}
			for _, sentence := range regexp.MustCompile(`[.;:] `).Split(help, -1) {
				if words := len(strings.Fields(sentence)); words > 25 {
					t.Errorf("%s: %q has %d words", at, sentence, words)
				}
			}
			return true
		})
	})
	if commands < 20 || flags < 50 {
		t.Errorf("found %d commands and %d flags only", commands, flags)
	}
}

// TestCommentsAreNarrow: a line of a comment has at most 100 columns, a tab being four. Code and
// the output of examples may have more.
func TestCommentsAreNarrow(t *testing.T) {
	t.Parallel()
	eachGoFile(t, func(file string) error {
		source, err := os.ReadFile(file)
		output, number := false, 0
		for line := range strings.Lines(string(source)) {
			number++
			text, isComment := strings.CutPrefix(strings.TrimLeft(line, "\t"), "//")
			output = isComment && (output || strings.Contains(strings.ToLower(text), "output:"))
			width := utf8.RuneCountInString(strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    "))
			if isComment && !output && width > 100 && !strings.HasPrefix(text, "\t") {
				t.Errorf("%s:%d: a comment has %d columns", file, number, width)
			}
		}
		return err
	})
}

// bannedWords are the words that .vale/styles/dblock bans.
func bannedWords(t *testing.T) *regexp.Regexp {
	t.Helper()
	var words []string
	for _, name := range []string{"People", "Tell", "Metaphors", "Terms"} {
		style, err := os.ReadFile(filepath.Join(".vale", "styles", "dblock", name+".yml"))
		if err != nil {
			t.Fatal(err)
		}
		_, list, found := strings.Cut(string(style), "\ntokens:\n")
		if !found {
			_, list, found = strings.Cut(string(style), "\nswap:\n")
		}
		for line := range strings.Lines(list) {
			word, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "- "), ": ")
			words = append(words, word)
		}
		if !found || len(words) == 0 {
			t.Fatalf("%s.yml lists no words", name)
		}
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(words, "|") + `)\b`)
}

// eachFile parses the module's own files that are not tests.
func eachFile(t *testing.T, f func(*token.FileSet, *ast.File)) {
	t.Helper()
	eachGoFile(t, func(file string) error {
		if strings.HasSuffix(file, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
		if err == nil {
			f(files, parsed)
		}
		return err
	})
}

// eachGoFile names the files of Go, but for those that sqlc and ent have generated.
func eachGoFile(t *testing.T, f func(file string) error) {
	t.Helper()
	generated := []string{"db", filepath.Join("examples", "optimistic", "ent")}
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		switch hidden := file != "." && strings.HasPrefix(entry.Name(), "."); {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || slices.Contains(generated, file)):
			return fs.SkipDir
		case entry.IsDir(), !strings.HasSuffix(file, ".go"):
			return nil
		default:
			return f(file)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// errorText returns the literals in the text of an error that n makes: by errors.New, fmt.Errorf or
// an InvalidError. nil: it makes none.
func errorText(n ast.Node) (text []string) {
	var from ast.Expr
	switch n := n.(type) {
	case *ast.CallExpr:
		if f := name(n.Fun); len(n.Args) > 0 && (f == "errors.New" || f == "fmt.Errorf") {
			from = n.Args[0]
		}
	case *ast.CompositeLit:
		if f := name(n.Type); len(n.Elts) == 2 && strings.HasSuffix(f, "InvalidError") {
			from = n.Elts[1]
		}
	}
	if from == nil {
		return nil
	}
	ast.Inspect(from, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if s, err := strconv.Unquote(literal.Value); err == nil {
				text = append(text, s)
			}
		}
		return true
	})
	return text
}

// name is that of a function or a type, with its package.
func name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return name(e.X) + "." + e.Sel.Name
	default:
		return ""
	}
}

// isLower reports whether a text begins in lower case, or with data, an identifier, a keyword of
// SQL or the name of a product.
func isLower(text string) bool {
	first, _, _ := strings.Cut(text, " ")
	r, size := utf8.DecodeRuneInString(first)
	switch {
	case !unicode.IsUpper(r), strings.IndexFunc(first[size:], unicode.IsUpper) >= 0:
		return true
	default:
		return first == "Postgres" || first == "Galera"
	}
}

// helpText returns the help of a field of kong's, and whether the field is a command.
func helpText(t *testing.T, n ast.Node) (help string, isCommand bool) {
	t.Helper()
	field, ok := n.(*ast.Field)
	if !ok || field.Tag == nil {
		return "", false
	}
	text, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		t.Fatal(err)
	}
	tag := reflect.StructTag(text)
	_, isCommand = tag.Lookup("cmd")
	return tag.Get("help"), isCommand
}
