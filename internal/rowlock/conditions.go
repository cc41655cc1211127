package rowlock

import (
	"slices"
	"strings"
	"unicode"
)

// Conditions are what a query calls in and behind its FROM. A server that has locked a row
// evaluates them again, but not by later rows of other tables, which a sub-select or a function may
// read.
type Conditions struct {
	Functions []string // names before a bracket, some of which are no function's
	Members   []string // names behind a dot: Postgres calls a function of a row so, too.
	Homes     []string // names before a dot, some of which are schemas
	Operators []string // of Postgres, those that its words stand for among them, and Cast
	FromEnd   int      // where what follows the FROM begins

	reason string // for which it is refused; empty: none
}

// Cast stands for casts among the operators.
const Cast = "::"

// wordOperators are the operators that words of Postgres call.
var wordOperators = map[string][]string{
	"IN": {"=", "<>"}, "ANY": {"="}, "SOME": {"="}, "ALL": {"="}, "CASE": {"="}, "NULLIF": {"="}, "DISTINCT": {"="},
	"BETWEEN": {"<=", ">=", "<", ">"}, "LIKE": {"~~", "!~~"}, "ILIKE": {"~~*", "!~~*"}, "SIMILAR": {"~", "!~"}, "CAST": {Cast},
}

// readers are functions of Postgres itself that run a query, or read a table, that they are given.
var readers = []string{
	"query_to_xml", "query_to_xmlschema", "query_to_xml_and_xmlschema", "table_to_xml", "table_to_xmlschema", "table_to_xml_and_xmlschema",
	"schema_to_xml", "schema_to_xmlschema", "schema_to_xml_and_xmlschema", "database_to_xml", "database_to_xmlschema",
	"database_to_xml_and_xmlschema", "cursor_to_xml", "cursor_to_xmlschema", "ts_stat", "ts_rewrite",
}

// StaleReason is why a claim does not read other tables.
const StaleReason = "the server would judge it by rows of other tables as they were before the lock: " +
	"state in the row itself whether it is free"

const notOneTable = "it reads more than one table: the rows of all would be locked, and others pass over what goes with a row of theirs"

// Conditions reads a query.
func (d Dialect) Conditions(query string) Conditions {
	r := conditionReader{d: d}
	r.found.FromEnd = len(query)
	for s := query; s != ""; {
		from := r.from
		n := r.next(s)
		if from && !r.from {
			r.found.FromEnd = len(query) - len(s)
		}
		s = s[n:]
	}
	return r.found
}

type conditionReader struct {
	d      Dialect
	found  Conditions
	depth  int    // of brackets
	behind bool   // FROM was read
	from   bool   // its end was not
	name   string // that was read last, if nothing but comments follows it
	word   string // the name in upper case, if it is not quoted
	dotted bool   // a dot was read last
}

// next reads one token and returns its length.
func (r *conditionReader) next(s string) int {
	if s[0] == '"' || s[0] == '`' {
		n := quotedName(s)
		r.read(strings.ReplaceAll(s[1:max(1, n-1)], s[:1]+s[:1], s[:1]), "")
		return n
	}
	if n := r.d.skip(s); n > 0 {
		if isComment := s[0] == '-' || s[0] == '#' || s[0] == '/'; !isComment {
			if r.name != "" { // of a type: a cast of the string
				r.calls(Cast)
			}
			r.name, r.word, r.dotted = "", "", false
		} else if !r.d.Dollar && (strings.HasPrefix(s, "/*!") || strings.HasPrefix(s, "/*M!")) {
			r.refuse("the server executes a comment that begins with /*!: leave the comment signs out")
		}
		return n
	}
	if n := r.d.identifier(s); n > 0 {
		name := s[:n]
		if r.d.Dollar {
			name = lower(name)
			if r.behind && strings.ContainsFunc(name, func(c rune) bool { return unicode.ToLower(c) != c }) {
				r.refuse("the server's encoding decides how it reads the capital letters in " + s[:n] + ": quote the name, as it is stored")
			}
		}
		r.read(name, upper(s[:n]))
		return n
	}
	if s[0] <= ' ' {
		return 1
	}
	if strings.HasPrefix(s, Cast) {
		r.calls(Cast)
		r.name, r.word, r.dotted = "", "", false
		return len(Cast)
	}
	name, word := r.name, r.word
	r.name, r.word, r.dotted = "", "", s[0] == '.' && !isNumber(name)
	if r.dotted && r.behind && name != "" {
		r.found.Homes = append(r.found.Homes, name)
	}
	switch s[0] {
	case '(':
		r.depth++
		if r.behind && name != "" {
			r.found.Functions = append(r.found.Functions, name)
			if r.d.Dollar && slices.Contains(readers, name) {
				r.refuse("the function " + name + " may read other tables: " + StaleReason)
			}
		}
	case ')':
		r.depth--
	case ',':
		if r.from && r.depth == 0 {
			r.refuse(notOneTable)
		}
	default:
		return max(1, r.operator(s, word))
	}
	return 1
}

// operator reads an operator of Postgres.
func (r *conditionReader) operator(s, before string) int {
	n := 0
	for n < len(s) && strings.IndexByte("+-*/<>=~!@#%^&|`?", s[n]) >= 0 &&
		(n == 0 || !strings.HasPrefix(s[n:], "--") && !strings.HasPrefix(s[n:], "/*")) {
		n++
	}
	if !r.d.Dollar || n == 0 {
		return 1
	}
	if before == "U" && s[:n] == "&" {
		r.refuse("write names without U&")
	}
	r.calls(s[:n])
	return n
}

// calls takes note of operators of Postgres.
func (r *conditionReader) calls(operators ...string) {
	for _, o := range operators {
		if r.d.Dollar && r.behind && !slices.Contains(r.found.Operators, o) {
			r.found.Operators = append(r.found.Operators, o)
		}
	}
}

// read takes note of a name. A quoted one has no word.
func (r *conditionReader) read(name, word string) {
	before := r.word
	if r.behind && r.dotted {
		r.found.Members = append(r.found.Members, name)
	}
	dotted := r.dotted
	r.name, r.word, r.dotted = name, word, false
	r.calls(wordOperators[word]...)
	switch {
	case word == "FROM" && r.depth == 0 && before != "DISTINCT":
		r.behind, r.from = true, true
	case !dotted && (word == "WHERE" || word == "ORDER" && before != "FOR"): // USE INDEX FOR ORDER BY
		r.from = r.from && r.depth > 0
	case r.behind && !dotted && (word == "SELECT" || word == "TABLE"):
		r.refuse(StaleReason)
	case !r.d.Dollar && !dotted && word == "OVER": // Postgres refuses it itself
		r.refuse(word + otherRows)
	case r.behind && (word == "JOIN" || word == "STRAIGHT_JOIN"):
		r.refuse(notOneTable)
	}
}

func (r *conditionReader) refuse(reason string) {
	if r.found.reason == "" {
		r.found.reason = reason
	}
}
