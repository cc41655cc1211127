package mysql

import (
	"fmt"
	"strings"
	"sync"

	"github.com/dblock-go/dblock/internal/schema"
)

// A template is a statement of queries/mysql without its arguments. Its tables are qualified. A
// part of it repeats if the statement is for a batch: it stands between two markers, which are
// comments.
//
//	/*dblock:rows*/  … /*dblock:end*/  a row of VALUES
//	/*dblock:asks*/  … /*dblock:end*/  a SELECT of a derived table
//	/*dblock:terms*/ … /*dblock:end*/  a term of a condition or of a CASE
type template struct {
	comment, verb       string // what stands before the text; no verb: hints have no place
	hints               string
	before, part, after string
	separator           string // between two repetitions of part
	outside, inside     int    // places for arguments outside of part, and in it
}

const (
	markBegin = "/*dblock:"
	markEnd   = "/*dblock:end*/"
)

var separators = map[string]string{"rows": ", ", "asks": " UNION ALL ", "terms": ""}

// parse makes a template. boundTables adds the bound on waits for tables.
func parse(query string, boundTables bool) *template {
	t := new(template)
	at := begin(query)
	t.comment, query = query[:at], query[at:]
	for _, verb := range []string{"SELECT ", "INSERT ", "UPDATE ", "DELETE "} {
		if !strings.HasPrefix(query, verb) {
			continue
		}
		t.verb, query = verb, query[len(verb):]
		if boundTables {
			t.hints = tableBound
		}
	}
	before, rest, marked := strings.Cut(query, markBegin)
	t.before, t.outside = before, places(before)
	if !marked {
		return t
	}
	kind, rest, _ := strings.Cut(rest, "*/")
	part, after, closed := strings.Cut(rest, markEnd)
	separator, known := separators[kind]
	if !closed || !known || strings.Contains(after, markBegin) {
		panic(fmt.Sprintf("mysql: the markers of %q", t.comment+t.verb+query))
	}
	if separator != "" {
		part = strings.TrimSpace(part)
	}
	t.part, t.after, t.separator = part, after, separator
	t.inside, t.outside = places(part), t.outside+places(after)
	return t
}

// places counts the question marks of a text, but for those in names with backticks.
func places(text string) (n int) {
	for i, between := range strings.Split(text, "`") {
		if i%2 == 0 {
			n += strings.Count(between, "?")
		}
	}
	return n
}

// text is the statement with its arguments in place. Their number says how often the part repeats.
// It panics if their number or type does not fit: that is a defect of the caller, never of the
// data.
func (t *template) text(prefix, hint string, args []any) string {
	times := 0
	if t.inside > 0 {
		times = (len(args) - t.outside) / t.inside
	}
	if len(args) != t.outside+times*t.inside || times < 0 {
		panic(fmt.Sprintf("mysql: %d arguments for %d and %d places in %q", len(args), t.outside, t.inside, t.comment+t.before))
	}
	buf := make([]byte, 0, len(t.before)+len(t.after)+times*len(t.part)+32*len(args)+64)
	buf = append(append(append(buf, prefix...), t.comment...), t.verb...)
	if hints := strings.TrimSpace(t.hints + " " + hint); hints != "" && t.verb != "" {
		buf = append(append(append(buf, "/*+ "...), hints...), " */ "...)
	}
	buf, args = fill(buf, t.before, args)
	for i := range times {
		if i > 0 {
			buf = append(buf, t.separator...)
		}
		buf, args = fill(buf, t.part, args)
	}
	buf, _ = fill(buf, t.after, args)
	return string(buf)
}

// fill appends a text with arguments in the place of its question marks. It returns the arguments
// that are left.
func fill(buf []byte, text string, args []any) ([]byte, []any) {
	quoted := false
	for i := range len(text) {
		switch c := text[i]; {
		case c == '?' && !quoted:
			buf, args = literal(buf, args[0]), args[1:]
			continue
		case c == '`':
			quoted = !quoted
		}
		buf = append(buf, text[i])
	}
	return buf, args
}

// tables are dblock's in one database. They keep the templates of its statements.
type tables struct {
	schema    string // empty: the database that the connection uses
	templates sync.Map
}

type templateKey struct {
	query       string
	boundTables bool
}

// template returns that of a query. The list of values that sqlc has written into a query makes it
// another one each time: such a query is not kept.
func (t *tables) template(query string, boundTables bool) *template {
	key := templateKey{query, boundTables}
	if known, ok := t.templates.Load(key); ok {
		return known.(*template)
	}
	made := parse(Qualify(query, t.schema), boundTables)
	if !strings.Contains(query, "?,?") {
		t.templates.Store(key, made)
	}
	return made
}

// Qualify puts the tables of a statement into the database of that name.
func Qualify(query, name string) string { return schema.Qualify(query, name, schema.QuoteMySQL) }
