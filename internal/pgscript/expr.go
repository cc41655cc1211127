package pgscript

import (
	"math"
	"strconv"
	"strings"
)

// expr is an expression of \set, read and checked as far as that goes without values.
type expr interface {
	eval(s *Session) (value, error)
}

type (
	constant value
	variable struct{ slot int }
	unary    struct{ of expr }
	binary   struct {
		op          byte
		left, right expr
	}
	call struct {
		of   *function
		args []expr
	}
)

func (c constant) eval(*Session) (value, error)   { return value(c), nil }
func (v variable) eval(s *Session) (value, error) { return s.slots[v.slot].value, nil }

func (u unary) eval(s *Session) (value, error) {
	v, err := u.of.eval(s)
	if err != nil {
		return value{}, err
	}
	return calculate('-', integer(0), v) // as pgbench has it: -0.0 is 0
}

func (b binary) eval(s *Session) (value, error) {
	left, err := b.left.eval(s)
	if err != nil {
		return value{}, err
	}
	right, err := b.right.eval(s)
	if err != nil {
		return value{}, err
	}
	return calculate(b.op, left, right)
}

func (c call) eval(s *Session) (value, error) {
	base := len(s.stack)
	defer func() { s.stack = s.stack[:base] }()
	for _, arg := range c.args {
		v, err := arg.eval(s)
		if err != nil {
			return value{}, err
		}
		s.stack = append(s.stack, v)
	}
	return c.of.eval(s, s.stack[base:])
}

// maxDepth of an expression: far more than anybody writes, and far from the end of the stack.
const maxDepth = 1000

// expression reads one to the end of the line.
func (p *parser) expression() (expr, error) {
	e, err := p.sum()
	if err != nil {
		return nil, err
	}
	if !p.atMetaEnd() {
		return nil, p.unexpected()
	}
	return e, nil
}

// deeper counts the nesting; the caller takes it back by p.depth--.
func (p *parser) deeper() error {
	if p.depth++; p.depth > maxDepth {
		return p.fail(p.pos, `\set: an expression that is nested more than %d times`, maxDepth)
	}
	return nil
}

func (p *parser) unexpected() error {
	if p.atMetaEnd() {
		return p.fail(p.pos, `\set: the expression ends too early`)
	}
	start := p.pos
	if p.word() == "" {
		p.pos++
	}
	return p.fail(start, `\set: unexpected %q: there are numbers, :variables, + - * / %%, parentheses, and functions`,
		p.text[start:p.pos])
}

func (p *parser) sum() (expr, error) { return p.chain("+-", p.product) }

func (p *parser) product() (expr, error) { return p.chain("*/%", p.signed) }

// chain reads operands with operators of one rank between them.
func (p *parser) chain(ops string, operand func() (expr, error)) (expr, error) {
	left, err := operand()
	for err == nil && !p.atMetaEnd() && strings.IndexByte(ops, p.text[p.pos]) >= 0 {
		b := binary{op: p.text[p.pos], left: left}
		p.pos++
		// A long chain is a deep tree to the left, which is evaluated by going down.
		if err = p.deeper(); err != nil {
			break
		}
		defer func() { p.depth-- }()
		b.right, err = operand()
		left = b
	}
	return left, err
}

func (p *parser) signed() (expr, error) {
	if p.atMetaEnd() {
		return nil, p.unexpected()
	}
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	switch p.text[p.pos] {
	case '+':
		p.pos++
		return p.signed()
	case '-':
		p.pos++
		p.skipMetaSpace()
		if e, err := p.smallest(); e != nil || err != nil {
			return e, err
		}
		of, err := p.signed()
		return unary{of}, err
	default:
		return p.primary()
	}
}

// smallest is the integer that has no positive twin.
func (p *parser) smallest() (expr, error) {
	const digits = "9223372036854775808"
	if !p.rest(digits) || isDigit(p.at(len(digits))) || p.at(len(digits)) == '.' || p.at(len(digits))|0x20 == 'e' {
		return nil, nil
	}
	p.pos += len(digits)
	return constant(integer(math.MinInt64)), nil
}

func (p *parser) primary() (expr, error) {
	switch c := p.at(0); {
	case c == '(':
		p.pos++
		e, err := p.sum()
		if err != nil {
			return nil, err
		}
		return e, p.expect(')')
	case c == ':':
		start := p.pos
		p.pos++
		name := p.name()
		if name == "" {
			p.pos = start
			return nil, p.unexpected()
		}
		v, err := p.number(start, "set", name)
		return variable{v.slot}, err
	case isDigit(c) || c == '.':
		return p.literal()
	case isNameByte(c):
		return p.call()
	default:
		return nil, p.unexpected()
	}
}

func (p *parser) expect(c byte) error {
	if p.atMetaEnd() || p.text[p.pos] != c {
		return p.unexpected()
	}
	p.pos++
	return nil
}

// literal reads a number: an integer unless it has a point or an exponent.
func (p *parser) literal() (expr, error) {
	start := p.pos
	digits := func() {
		for isDigit(p.at(0)) {
			p.pos++
		}
	}
	digits()
	whole := true
	if p.at(0) == '.' {
		whole = false
		p.pos++
		digits()
	}
	if n := exponent(p.text[p.pos:]); n > 0 {
		whole = false
		p.pos += n
	}
	text := p.text[start:p.pos]
	if isNameByte(p.at(0)) || text == "." {
		p.pos = start
		return nil, p.unexpected()
	}
	if whole {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, p.fail(start, `\set: %s is out of the range of integers`, text)
		}
		return constant(integer(n)), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, p.fail(start, `\set: %s is out of the range of doubles`, text)
	}
	return constant(double(f)), nil
}

// exponent is the length of the e+10 that a text begins with; 0 without one.
func exponent(s string) int {
	n := 1
	if s == "" || s[0]|0x20 != 'e' {
		return 0
	}
	if n < len(s) && (s[n] == '+' || s[n] == '-') {
		n++
	}
	first := n
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	if n == first {
		return 0
	}
	return n
}

func (p *parser) call() (expr, error) {
	start := p.pos
	name := p.name()
	f := functions[strings.ToLower(name)]
	if f == nil {
		return nil, p.fail(start, `\set: unknown function %q: there are %s`, name, functionNames)
	}
	c := call{of: f}
	if err := p.expect('('); err != nil {
		return nil, err
	}
	for !p.atMetaEnd() && p.text[p.pos] != ')' {
		if len(c.args) > 0 {
			if err := p.expect(','); err != nil {
				return nil, err
			}
		}
		arg, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.args = append(c.args, arg)
		p.skipMetaSpace()
	}
	if err := p.expect(')'); err != nil {
		return nil, err
	}
	if n := len(c.args); n < f.least || f.most >= 0 && n > f.most {
		return nil, p.fail(start, `\set: %s takes %s, not %d`, strings.ToLower(name), f.takes(), n)
	}
	return c, nil
}
