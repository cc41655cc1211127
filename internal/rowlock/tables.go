package rowlock

import (
	"slices"
	"strings"
)

// Tables are the tables whose rows a SELECT locks: those of its FROM, as Table quotes them. Each
// has one or several names before it, as the query does. nested: a sub-select stands in its FROM;
// on Postgres its tables are among them.
func (d Dialect) Tables(query string) (tables []string, nested bool) {
	r := reader{d: d, scopes: []scope{{}}}
	for s := query; s != ""; {
		s = s[r.next(s):]
	}
	r.finish()
	slices.Sort(r.tables)
	return slices.Compact(r.tables), r.nested
}

// reader finds the names of tables.
type reader struct {
	d      Dialect
	scopes []scope // one a bracket
	parts  []string
	dotted bool // a dot came after the last part
	column bool // a dot came last, which is no number's
	last   string
	tables []string
	nested bool
}

// scope is what stands within one pair of brackets.
type scope struct {
	from   bool // between FROM and its end
	wanted bool // the name of a table is next
	other  bool // these brackets are not of a FROM: no row of theirs is locked
}

// next reads one token and returns its length.
func (r *reader) next(s string) int {
	top := &r.scopes[len(r.scopes)-1]
	if s[0] == '`' || s[0] == '"' {
		n := quotedName(s)
		r.name(strings.ReplaceAll(s[1:max(1, n-1)], s[:1]+s[:1], s[:1]), top)
		return n
	}
	if n := r.d.skip(s); n > 0 {
		return n
	}
	if n := r.d.identifier(s); n > 0 {
		r.word(s[:n], top)
		return n
	}
	if s[0] > ' ' {
		r.column = s[0] == '.' && !isNumber(r.last)
	}
	switch s[0] {
	case '.':
		r.dotted = len(r.parts) > 0
	case '(':
		r.open(top)
	case ')':
		r.finish()
		if len(r.scopes) > 1 {
			r.scopes = r.scopes[:len(r.scopes)-1]
		}
	case ',':
		r.finish()
		top.wanted = top.from
	default:
		if s[0] > ' ' {
			r.finish()
		}
	}
	return 1
}

// open enters brackets. After a name they are a function's, or a list's: then the name is no
// table's.
func (r *reader) open(top *scope) {
	inFrom := top.wanted && len(r.parts) == 0
	r.parts = nil
	top.wanted = false
	r.scopes = append(r.scopes, scope{from: inFrom, wanted: inFrom, other: top.other || !inFrom})
}

func (r *reader) word(word string, top *scope) {
	if len(r.parts) > 0 && r.dotted {
		r.name(r.folded(word), top)
		return
	}
	r.finish()
	before, column := r.last, r.column
	r.last, r.column = upper(word), false
	switch r.last {
	case "SELECT":
		r.nested = r.nested || len(r.scopes) > 1 && !top.other
		*top = scope{other: top.other}
	case "FROM":
		if before != "DISTINCT" && !column { // IS DISTINCT FROM compares
			top.from, top.wanted = true, true
		}
	case "JOIN", "STRAIGHT_JOIN":
		top.wanted = top.from
	case "WHERE", "GROUP", "HAVING", "WINDOW", "LIMIT", "UNION":
		top.from, top.wanted = false, false
	case "ORDER":
		if before != "FOR" { // USE INDEX FOR ORDER BY
			top.from, top.wanted = false, false
		}
	case "LATERAL", "ONLY":
	case "DUAL":
		if r.d.Dollar { // on Postgres it is a name as any other
			r.name(r.folded(word), top)
		}
	default:
		r.name(r.folded(word), top)
	}
}

// folded is a name without quotes as the server reads it.
func (r *reader) folded(word string) string {
	if r.d.Dollar { // Postgres
		return lower(word)
	}
	return word
}

func (r *reader) name(part string, top *scope) {
	if len(r.parts) > 0 && r.dotted {
		r.parts, r.dotted = append(r.parts, part), false
		return
	}
	r.finish()
	if top.wanted && !top.other {
		r.parts = []string{part}
	}
	top.wanted = false
}

// finish ends a name.
func (r *reader) finish() {
	quote := "`"
	if r.d.Dollar {
		quote = `"`
	}
	for i, part := range r.parts {
		r.parts[i] = quote + strings.ReplaceAll(part, quote, quote+quote) + quote
	}
	if len(r.parts) > 0 {
		r.tables = append(r.tables, strings.Join(r.parts, "."))
	}
	r.parts, r.dotted = nil, false
}

// identifier is how many bytes of a name without quotes s begins with. Names of MySQL may begin
// with a dollar sign.
func (d Dialect) identifier(s string) int {
	n := word(s)
	for (n > 0 || !d.Dollar) && n < len(s) && s[n] == '$' {
		n++
		n += word(s[n:])
	}
	return n
}

// quotedName is how long the quoted name is that s begins with; a doubled quote is one of its
// characters.
func quotedName(s string) int {
	for i := 1; i < len(s); i++ {
		if s[i] != s[0] {
			continue
		}
		if i+1 < len(s) && s[i+1] == s[0] {
			i++
			continue
		}
		return i + 1
	}
	return len(s)
}
