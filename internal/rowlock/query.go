package rowlock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

// Dialect is how an engine's text is to be read.
type Dialect struct {
	Dollar bool // $tag$ quotes
	Hash   bool // begins a comment
}

// The dialects.
var (
	Postgres = Dialect{Dollar: true}
	MySQL    = Dialect{Hash: true}
)

// CheckQuery refuses a SELECT to which LIMIT and a lock can't be added. What else is wrong with it
// the server says.
func (d Dialect) CheckQuery(query string) error {
	if err := root.CheckText("query", query, 1, 1<<20); err != nil {
		return err
	}
	if strings.Contains(query, `\'`) || strings.Contains(query, `\"`) {
		return refused(`it has a backslash before a quote, and settings of the session decide whether the string ends there: ` +
			`pass the string as an argument`)
	}
	words := d.words(query)
	if len(words) == 0 || words[0] != "SELECT" {
		return refused("it has to begin with SELECT: the lock would not reach the rows of anything else")
	}
	for i, word := range words {
		var before, next string
		if i > 0 {
			before = words[i-1]
		}
		if i+1 < len(words) {
			next = words[i+1]
		}
		if before == "." && !isNumber(words[max(0, i-2)]) { // t.limit is a column
			continue
		}
		if reason := d.objection(before, word, next); reason != "" {
			return refused(reason)
		}
	}
	reason := d.clauses(query).reason
	switch tables, nested := d.Tables(query); {
	case nested:
		return refused(notNested)
	case reason != "":
		return refused(reason)
	case len(tables) == 0:
		return refused("its FROM has no table: there are no rows to lock")
	case len(tables) > 1:
		return refused(notOneTable)
	}
	return nil
}

// notNested: MySQL locks no rows of a sub-select. Postgres locks none of a UNION, a CTE, a function
// or VALUES within one.
const notNested = "its lock would not reach the rows of a sub-select in its FROM"

const otherRows = " makes other rows of those that would be locked"

// objection says what is wrong with a word at the query's own level.
func (d Dialect) objection(before, word, next string) string {
	switch word {
	case ";":
		return "it has a semicolon: leave that out"
	case "FOR":
		if slices.Contains([]string{"UPDATE", "SHARE", "NO", "KEY"}, next) {
			return "it has a lock of its own: leave FOR " + next + " out"
		}
	case "LOCK":
		if next == "IN" {
			return "it has a lock of its own: leave LOCK IN SHARE MODE out"
		}
	case "LIMIT", "FETCH", "OFFSET":
		return "it has a " + word + " of its own: leave that out, the number is an argument"
	case "UNION", "INTERSECT", "EXCEPT", "GROUP", "HAVING", "INTO", "OVER", "SQL_CALC_FOUND_ROWS":
		return word + otherRows
	case "COUNT", "SUM", "MIN", "MAX", "AVG", "GROUP_CONCAT", "JSON_ARRAYAGG", "JSON_OBJECTAGG", "BIT_AND", "BIT_OR", "BIT_XOR":
		if next == "(" {
			return word + otherRows
		}
	case "DISTINCT", "DISTINCTROW":
		if before != "IS" && before != "NOT" { // IS DISTINCT FROM compares
			return word + otherRows
		}
	case "(":
		if before == "FROM" || before == "JOIN" {
			return notNested
		}
	}
	return ""
}

func refused(reason string) error { return &dblock.InvalidError{Field: "query", Reason: reason} }

// words are the words of a query's own level, in upper case, and its signs; what stands within
// brackets is left out, but for semicolons, and so are strings, quoted names and comments.
func (d Dialect) words(query string) (words []string) {
	depth := 0
	for s := query; s != ""; {
		n := d.skip(s)
		if n > 0 {
			s = s[n:]
			continue
		}
		n = d.identifier(s)
		switch {
		case n > 0:
			if depth == 0 {
				words = append(words, upper(s[:n]))
			}
		case s[0] == ')':
			n, depth = 1, depth-1
		default:
			n = 1
			if depth == 0 && s[0] > ' ' || s[0] == ';' {
				words = append(words, s[:1])
			}
			if s[0] == '(' {
				depth++
			}
		}
		s = s[n:]
	}
	return words
}

// CutSelect cuts a query behind its first word.
func (d Dialect) CutSelect(query string) (selects, rest string) {
	at := 0
	for at < len(query) && d.identifier(query[at:]) == 0 {
		at += max(1, d.skip(query[at:]))
	}
	at += d.identifier(query[at:])
	return query[:at], query[at:]
}

// isNumber reports that a word is one: a point behind it is its own.
func isNumber(word string) bool { return word != "" && strings.Trim(word, "0123456789") == "" }

// upper and lower fold ASCII, as servers do.
func upper(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, s)
}

func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, s)
}

// word is how many bytes of a word s begins with.
func word(s string) int {
	n := strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && r < 0x80 && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if n < 0 {
		return len(s)
	}
	return n
}

// skip is how many bytes of a string, a quoted name, a variable or a comment s begins with. A
// doubled quote is the end of one string and the begin of another.
func (d Dialect) skip(s string) int {
	switch {
	case !d.Dollar && s[0] == '@': // its name may have dots
		n := 1
		for n < len(s) && (s[n] == '@' || s[n] == '.' || s[n] == '$' || word(s[n:]) > 0) {
			n += max(1, word(s[n:]))
		}
		return n
	case s[0] == '\'' || s[0] == '"' || s[0] == '`':
		return until(s, 1, s[:1])
	case d.isDashes(s) || d.Hash && s[0] == '#':
		end := "\n"
		if d.Dollar {
			end = "\r\n"
		}
		if n := strings.IndexAny(s, end); n >= 0 {
			return n + 1
		}
		return len(s)
	case strings.HasPrefix(s, "/*"):
		return d.comment(s)
	case d.Dollar && s[0] == '$':
		if n := word(s[1:]) + 2; n <= len(s) && s[n-1] == '$' && (n == 2 || s[1] > '9') { // $1 is a parameter
			return until(s, n, s[:n])
		}
	}
	return 0
}

// isDashes reports that s begins with a comment of two dashes. To MySQL 5--1 is a difference.
func (d Dialect) isDashes(s string) bool {
	return strings.HasPrefix(s, "--") && (d.Dollar || len(s) == 2 || s[2] <= ' ' || s[2] == 0x7f)
}

// comment is how long a comment is. Those of Postgres nest.
func (d Dialect) comment(s string) int {
	n := 2
	for n < len(s) {
		switch {
		case strings.HasPrefix(s[n:], "*/"):
			return n + 2
		case d.Dollar && strings.HasPrefix(s[n:], "/*"):
			n += d.comment(s[n:])
		default:
			n++
		}
	}
	return n
}

func until(s string, from int, end string) int {
	if n := strings.Index(s[from:], end); n >= 0 {
		return from + n + len(end)
	}
	return len(s)
}

// Claim adds the number of rows and the lock to a query that was checked. They stand on lines of
// their own: the query may end in a comment.
func Claim(query string, n int, lock string) string {
	return fmt.Sprintf("%s\nLIMIT %d\n%s", query, n, lock)
}
