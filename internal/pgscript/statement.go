package pgscript

import (
	"errors"
	"strconv"
	"strings"
)

// statement reads SQL up to its semicolon, to a meta command or to the end.
func (p *parser) statement() (Command, error) {
	start := p.pos
	b := statement{SQL: SQL{line: p.lineOf(start)}, p: p, from: start}
	for p.pos < len(p.text) && p.text[p.pos] != '\\' {
		if p.text[p.pos] == ';' && b.complete() {
			b.upTo(p.pos)
			p.pos++
			return b.done(), nil
		}
		if err := b.token(); err != nil {
			return nil, err
		}
	}
	b.upTo(p.pos)
	return b.done(), nil
}

// statement is one that is being read.
type statement struct {
	SQL
	p                *parser
	from             int // what follows has not been copied
	dollar, question strings.Builder

	parens int
	body   body
}

// complete tells whether a semicolon would end the statement.
func (b *statement) complete() bool { return b.parens == 0 && b.body.depth == 0 }

func (b *statement) upTo(end int) {
	b.dollar.WriteString(b.p.text[b.from:end])
	b.question.WriteString(b.p.text[b.from:end])
}

func (b *statement) done() *SQL {
	b.Text, b.Question = strings.TrimRight(b.dollar.String(), " \t\r\n\v\f"), strings.TrimRight(b.question.String(), " \t\r\n\v\f")
	return &b.SQL
}

// token goes behind the next piece of the statement.
func (b *statement) token() error {
	p := b.p
	switch c := p.text[p.pos]; {
	case c == '\'' || c == '"' || c == '`':
		return p.skipQuoted()
	case c == '$':
		return b.dollarSign()
	case c == ':':
		return b.colon()
	case p.rest("--"):
		p.skipLine()
	case p.rest("/*"):
		return p.skipComment()
	case isNameByte(c) && !isDigit(c):
		word := p.word()
		if (word == "E" || word == "e") && p.at(0) == '\'' {
			return p.skipEscaped()
		}
		if b.parens == 0 {
			b.body.word(word)
		}
	default:
		switch c {
		case '(':
			b.parens++
		case ')':
			b.parens = max(0, b.parens-1)
		}
		p.pos++
	}
	return nil
}

var errParameter = errors.New("a script has no parameters: write a variable, as in :name")

func (b *statement) dollarSign() error {
	p := b.p
	quoted, err := p.skipDollar()
	if quoted || err != nil {
		return err
	}
	if isDigit(p.at(1)) && !p.plain {
		return p.fail(p.pos, "%w", errParameter)
	}
	p.pos++
	return nil
}

// maxVars is how many parameters the protocols of both databases can carry.
const maxVars = 65535

// colon takes a variable. Several colons are a cast, and one before anything else an operator.
func (b *statement) colon() error {
	p := b.p
	start := p.pos
	for p.at(0) == ':' {
		p.pos++
	}
	if p.plain || p.pos > start+1 {
		return nil
	}
	name := p.name()
	if name == "" {
		return nil
	}
	v, err := p.use(start, name)
	if err != nil {
		return err
	}
	if len(b.Vars) == maxVars {
		return p.fail(start, "a statement can't hold more than %d variables", maxVars)
	}
	b.upTo(start)
	b.from = p.pos
	b.Vars = append(b.Vars, v)
	b.dollar.WriteString("$" + strconv.Itoa(len(b.Vars)))
	b.question.WriteByte('?')
	return nil
}

// body knows the functions whose body is written in SQL, between BEGIN ATOMIC and END: there, a
// semicolon ends nothing. The words before tell them from other statements, as in psql.
type body struct {
	first string // first letters of CREATE [OR REPLACE] {FUNCTION | PROCEDURE}
	words int
	depth int
}

func (b *body) word(word string) {
	word = strings.ToLower(word)
	if b.words++; b.words <= 4 {
		switch word {
		case "create", "or", "replace", "function", "procedure":
			b.first += word[:1]
		}
	}
	switch {
	case b.first != "cf" && b.first != "cp" && b.first != "corf" && b.first != "corp":
	case word == "begin", word == "case" && b.depth > 0:
		b.depth++
	case word == "end" && b.depth > 0:
		b.depth--
	}
}
