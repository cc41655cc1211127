package migrations

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/schema"
)

// verb is what a part of a statement does to an object.
type verb int

const (
	other verb = iota // neither of the two; it may run twice
	add
	drop
)

// part is one thing that a statement does.
type part struct {
	verb   verb
	object schema.Object // without a name it is the table
	text   string        // of ALTER TABLE: the clause
}

// statement is one statement of a migration, without comments and without a schema's name.
type statement struct {
	text  string
	table string // the one that it changes; "" for none, or where only the index is named
	parts []part
	alter bool // ALTER TABLE: some of its parts can run without the others
	apart bool // Postgres: locks nothing that readers and writers need, if it runs outside of a transaction
}

var (
	comment     = regexp.MustCompile(`(?m)--(\s.*)?$`)
	createTable = regexp.MustCompile(`^CREATE TABLE (\w+)\s*\(`)
	dropTable   = regexp.MustCompile(`^DROP TABLE (?:IF EXISTS )?(\w+)$`)
	createIndex = regexp.MustCompile(`^CREATE (?:UNIQUE )?INDEX (\w+) ON (\w+)\b`)
	dropIndex   = regexp.MustCompile(`^DROP INDEX (\w+)(?: ON (\w+))?$`)
	alterTable  = regexp.MustCompile(`(?s)^ALTER TABLE (\w+)\s+(.+)$`)
	column      = regexp.MustCompile(`^(ADD|DROP) COLUMN (\w+)\b`)
	index       = regexp.MustCompile(`^(ADD|DROP) (?:UNIQUE )?(?:INDEX|KEY) (\w+)\b`)
	check       = regexp.MustCompile(`^(ADD|DROP) (?:CONSTRAINT|CHECK) (\w+)(?:\s+CHECK\b|$)`)
	validate    = regexp.MustCompile(`^VALIDATE CONSTRAINT \w+$`)
	harmless    = regexp.MustCompile(`^(?:SET \(|ALTER COLUMN|MODIFY |VALIDATE |ALTER INDEX|ENGINE\b)`)
	rows        = regexp.MustCompile(`^(?:DO 0$|(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)\b|CREATE OR REPLACE |DROP FUNCTION IF EXISTS )`)
)

// statements parses a half of a migration. It refuses what it does not understand: a run that was
// cut off could not be continued there.
func statements(text string) ([]statement, error) {
	var list []statement
	for text := range strings.SplitSeq(comment.ReplaceAllString(text, ""), ";\n") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		s, err := parse(text)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func parse(text string) (statement, error) {
	s := statement{text: text}
	if m := createTable.FindStringSubmatch(text); m != nil {
		s.table, s.parts = m[1], []part{{verb: add, object: schema.Object{Table: m[1]}}}
	} else if m := dropTable.FindStringSubmatch(text); m != nil {
		s.table, s.parts = m[1], []part{{verb: drop, object: schema.Object{Table: m[1]}}}
	} else if m := createIndex.FindStringSubmatch(text); m != nil {
		s.table, s.apart = m[2], true
		s.parts = []part{{verb: add, object: schema.Object{Table: m[2], Kind: schema.Index, Name: m[1]}}}
	} else if m := dropIndex.FindStringSubmatch(text); m != nil {
		s.table, s.parts = m[2], []part{{verb: drop, object: schema.Object{Table: m[2], Kind: schema.Index, Name: m[1]}}}
	} else if m := alterTable.FindStringSubmatch(text); m != nil {
		s.table, s.alter = m[1], true
		for _, clause := range clauses(m[2]) {
			p, err := parseClause(m[1], clause)
			if err != nil {
				return s, err
			}
			s.parts = append(s.parts, p)
		}
		s.apart = len(s.parts) == 1 && validate.MatchString(s.parts[0].text)
	} else if m := rows.FindStringSubmatch(text); m != nil {
		s.table, s.parts = m[1], []part{{}}
	} else {
		return s, fmt.Errorf("dblock: migrations: a statement that is not understood: %s", text)
	}
	return s, nil
}

func parseClause(table, text string) (part, error) {
	for kind, expression := range map[string]*regexp.Regexp{schema.Column: column, schema.Index: index, schema.Limit: check} {
		if m := expression.FindStringSubmatch(text); m != nil {
			p := part{verb: add, object: schema.Object{Table: table, Kind: kind, Name: m[2]}, text: text}
			if m[1] == "DROP" {
				p.verb = drop
			}
			return p, nil
		}
	}
	if harmless.MatchString(text) {
		return part{object: schema.Object{Table: table}, text: text}, nil
	}
	return part{}, fmt.Errorf("dblock: migrations: a clause of ALTER TABLE %s that is not understood: %s", table, text)
}

// clauses splits at the commas that are outside of parentheses and strings.
func clauses(text string) []string {
	var list []string
	depth, from, quoted := 0, 0, false
	for i, c := range text {
		switch {
		case c == '\'':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			list = append(list, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	return append(list, strings.TrimSpace(text[from:]))
}

// locks reports whether the statement locks a table, and not rows alone.
func (s statement) locks() bool { return s.parts[0].object.Table != "" }

// only returns the statement with those of its parts that are wanted, and false if there are none.
func (s statement) only(wanted func(part) bool) (statement, bool) {
	parts := slices.DeleteFunc(slices.Clone(s.parts), func(p part) bool { return !wanted(p) })
	if len(parts) == 0 {
		return s, false
	}
	if s.alter && len(parts) < len(s.parts) {
		texts := make([]string, len(parts))
		for i, p := range parts {
			texts[i] = p.text
		}
		s.text = "ALTER TABLE " + s.table + " " + strings.Join(texts, ", ")
	}
	s.parts = parts
	return s, true
}
