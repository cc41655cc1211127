package rowlock

import (
	"strings"
	"unicode"
)

const (
	staleReason = "it has a sub-select in or behind its FROM, and the server would read that as it was before the lock: " +
		"state in the row itself whether it is free"
	notOneTable = "it reads more than one table: the rows of all would be locked, and others pass over what goes with a row of theirs"
)

// FromEnd is where what follows a query's FROM begins.
func (d Dialect) FromEnd(query string) int { return d.clauses(query).fromEnd }

// clauses reads the FROM of a query, and what follows it.
func (d Dialect) clauses(query string) clauseReader {
	r := clauseReader{d: d, fromEnd: len(query)}
	for s := query; s != ""; {
		from := r.from
		n := r.next(s)
		if from && !r.from {
			r.fromEnd = len(query) - len(s)
		}
		s = s[n:]
	}
	return r
}

type clauseReader struct {
	d       Dialect
	fromEnd int
	reason  string // for which the query is refused; empty: none

	depth  int    // of brackets
	behind bool   // FROM was read
	from   bool   // its end was not
	word   string // that was read last, in upper case, unless it was quoted
	dotted bool   // a dot was read last, which is no number's
}

// next reads one token and returns its length.
func (r *clauseReader) next(s string) int {
	if n := r.d.skip(s); n > 0 {
		if !r.d.Dollar && (strings.HasPrefix(s, "/*!") || strings.HasPrefix(s, "/*M!")) {
			r.refuse("the server executes a comment that begins with /*!: leave the comment signs out")
		}
		if isComment := s[0] == '-' || s[0] == '#' || s[0] == '/'; !isComment {
			r.word, r.dotted = "", false
		}
		return n
	}
	if n := r.d.identifier(s); n > 0 {
		r.read(s[:n], s[n:])
		return n
	}
	if s[0] <= ' ' {
		return 1
	}
	r.word, r.dotted = "", s[0] == '.' && !isNumber(r.word)
	switch s[0] {
	case '(':
		r.depth++
	case ')':
		r.depth--
	case ',':
		if r.from && r.depth == 0 {
			r.refuse(notOneTable)
		}
	}
	return 1
}

// read reads a name or a word that has no quotes.
func (r *clauseReader) read(name, rest string) {
	before, word := r.word, upper(name)
	dotted := r.dotted
	r.word, r.dotted = word, false
	switch {
	case r.d.Dollar && word == "U" && strings.HasPrefix(rest, `&"`):
		r.refuse("write names without U&")
	case r.d.Dollar && r.from && strings.ContainsFunc(lower(name), func(c rune) bool { return unicode.ToLower(c) != c }):
		r.refuse("the server's encoding decides how it reads the capital letters in " + name + ": quote the name, as it is stored")
	case word == "FROM" && !dotted && r.depth == 0 && before != "DISTINCT":
		r.behind, r.from = true, true
	case !dotted && (word == "WHERE" || word == "ORDER" && before != "FOR"): // USE INDEX FOR ORDER BY
		r.from = r.from && r.depth > 0
	case r.behind && !dotted && (word == "SELECT" || word == "TABLE"):
		r.refuse(staleReason)
	case !r.d.Dollar && !dotted && word == "OVER": // Postgres refuses it itself
		r.refuse(word + otherRows)
	case r.behind && !dotted && (word == "JOIN" || word == "STRAIGHT_JOIN"):
		r.refuse(notOneTable)
	}
}

func (r *clauseReader) refuse(reason string) {
	if r.reason == "" {
		r.reason = reason
	}
}
