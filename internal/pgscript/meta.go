package pgscript

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Set is \set: a variable gets the value of an expression.
type Set struct {
	line
	Name string
	slot int
	expr expr
}

// Sleep is \sleep.
type Sleep struct {
	line
	unit time.Duration
	n    int64
	v    *Var // how long, if a variable says it
}

// theirs are pgbench's other meta commands.
const theirs = " if elif else endif gset aset shell setshell startpipeline syncpipeline endpipeline "

// meta reads a meta command, to the end of its line.
func (p *parser) meta() (Command, error) {
	start := p.pos
	p.pos++
	name := p.untilSpace()
	switch {
	case p.plain:
		return nil, p.fail(start, `\%s: only plain SQL can stand here`, name)
	case strings.EqualFold(name, "set"):
		return p.set(start)
	case strings.EqualFold(name, "sleep"):
		return p.sleep(start)
	case name == "":
		return nil, p.fail(start, `no command after the \`)
	case strings.Contains(theirs, " "+strings.ToLower(name)+" "):
		return nil, p.fail(start, `\%s is not supported: of pgbench's meta commands there are \set and \sleep`, name)
	default:
		return nil, p.fail(start, `\%s: unknown meta command: there are \set and \sleep`, name)
	}
}

// skipMetaSpace skips blanks and ends of lines with a backslash before them; what is next belongs to
// the command, unless it is a newline.
func (p *parser) skipMetaSpace() {
	for {
		switch {
		case p.at(0) != '\n' && isSpace(p.at(0)):
			p.pos++
		case p.rest("\\\n"):
			p.pos += 2
		case p.rest("\\\r\n"):
			p.pos += 3
		default:
			return
		}
	}
}

// atMetaEnd tells whether the command has no more words.
func (p *parser) atMetaEnd() bool {
	p.skipMetaSpace()
	return p.pos >= len(p.text) || p.text[p.pos] == '\n'
}

func (p *parser) untilSpace() string {
	start := p.pos
	for p.pos < len(p.text) && !isSpace(p.text[p.pos]) && !p.rest("\\\n") && !p.rest("\\\r\n") {
		p.pos++
	}
	return p.text[start:p.pos]
}

func (p *parser) set(start int) (Command, error) {
	if p.atMetaEnd() {
		return nil, p.fail(start, `\set: the name of a variable is missing: \set name expression`)
	}
	c := &Set{line: p.lineOf(start), Name: p.untilSpace()}
	if !isName(c.Name) {
		return nil, p.fail(start, `\set: a variable can't be named %q: take letters, digits and underscores`, c.Name)
	}
	if p.atMetaEnd() {
		return nil, p.fail(start, `\set %s: the expression is missing: \set name expression`, c.Name)
	}
	var err error
	if c.expr, err = p.expression(); err != nil {
		return nil, err
	}
	c.slot = p.slot(c.Name) // only now: the expression may not use what is not set yet
	p.words[c.slot] = false
	return c, nil
}

const sleepForm = `\sleep {number | :variable} [us | ms | s]`

func (p *parser) sleep(start int) (Command, error) {
	var words []string
	for !p.atMetaEnd() {
		words = append(words, p.untilSpace())
	}
	if len(words) == 0 || len(words) > 2 {
		return nil, p.fail(start, `\sleep takes one or two words, not %d: %s`, len(words), sleepForm)
	}
	c := &Sleep{line: p.lineOf(start)}
	unit := ""
	if name, ok := strings.CutPrefix(words[0], ":"); ok {
		v, err := p.number(start, "sleep", name)
		if err != nil {
			return nil, err
		}
		c.v = &v
	} else {
		digits := strings.TrimRight(words[0], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
		var err error
		if c.n, err = strconv.ParseInt(digits, 10, 64); err != nil {
			return nil, p.fail(start, `\sleep: %q is no whole number: %s`, words[0], sleepForm)
		}
		unit = words[0][len(digits):]
	}
	if len(words) == 2 {
		if unit != "" {
			return nil, p.fail(start, `\sleep: two units: %s`, sleepForm)
		}
		unit = words[1]
	}
	switch strings.ToLower(unit) {
	case "us":
		c.unit = time.Microsecond
	case "ms":
		c.unit = time.Millisecond
	case "s", "":
		c.unit = time.Second
	default:
		return nil, p.fail(start, `\sleep: unknown unit %q: %s`, unit, sleepForm)
	}
	return c, nil
}

// duration of a number of units; what is negative is no time at all.
func (c *Sleep) duration(n int64) time.Duration {
	n = max(n, 0)
	if n > math.MaxInt64/int64(c.unit) {
		return math.MaxInt64
	}
	return time.Duration(n) * c.unit
}
