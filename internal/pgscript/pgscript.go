// Package pgscript reads and evaluates pgbench's scripts: SQL with :variables, and the meta commands
// \set and \sleep.
//
// What pgbench takes and this does not is an error with its line, never something else than pgbench
// would do. There are three differences. A variable inside of quotes is text, where pgbench would
// replace it. A variable that is used above its \set is an error, where pgbench would use the value
// of the transaction before. Backticks quote, as they do on MySQL.
package pgscript

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

// Script is a script that has been read. It is never written to: many Sessions may run it at once.
type Script struct {
	File     string
	Commands []Command // at least one

	names []string // of the variables, by their slots
	start []slot   // what the variables hold before the first command
}

// Command is a *Set, a *Sleep or an *SQL.
type Command interface {
	// At is the number of the command's first line.
	At() int
}

// line is where a command begins.
type line int

func (l line) At() int { return int(l) }

// SQL is one statement, without its semicolon.
type SQL struct {
	line
	Text     string // the variables are $1, $2, …
	Question string // the variables are ?
	Vars     []Var  // one for each place, in order
}

// Var is a variable of a script.
type Var struct {
	Name string
	slot int
}

// Error is what is wrong with a script.
type Error struct {
	File string
	Line int
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Failed is an error of one of the script's commands, with its place.
func (s *Script) Failed(c Command, err error) error {
	return &Error{File: s.File, Line: c.At(), Err: err}
}

var (
	errEmpty = errors.New("no command in it")
	errNUL   = errors.New("a byte 0, which no SQL can hold")
)

// Parse reads a script. The file's name is for errors. Variables may be defined, as pgbench's -D does
// it: by values that are numbers, or any text for use in SQL. client_id, random_seed and default_seed
// are defined by the session, and scale is 1 when it isn't given.
func Parse(file, text string, defined map[string]string) (*Script, error) {
	p := &parser{scanner: scanner{file: file, text: text}, script: &Script{File: file}, slots: map[string]int{}, words: map[int]bool{}}
	if err := p.define(defined); err != nil {
		return nil, err
	}
	if at := strings.IndexByte(text, 0); at >= 0 {
		return nil, p.fail(at, "%w", errNUL)
	}
	for {
		c, err := p.next()
		if err != nil {
			return nil, err
		}
		if c == nil {
			break
		}
		p.script.Commands = append(p.script.Commands, c)
	}
	if len(p.script.Commands) == 0 {
		return nil, p.fail(0, "%w", errEmpty)
	}
	return p.script, nil
}

// Statements splits plain SQL, in which a colon is a colon.
func Statements(file, text string) ([]*SQL, error) {
	p := &parser{scanner: scanner{file: file, text: text}, plain: true}
	if at := strings.IndexByte(text, 0); at >= 0 {
		return nil, p.fail(at, "%w", errNUL)
	}
	var all []*SQL
	for {
		c, err := p.next()
		if c == nil || err != nil {
			return all, err
		}
		if q, ok := c.(*SQL); ok && q.Text != "" {
			all = append(all, q)
		}
	}
}

type parser struct {
	scanner
	plain  bool // no variables and no meta commands
	script *Script
	slots  map[string]int // of the variables that are set by now
	words  map[int]bool   // the slots that hold what is not a number, by now
	depth  int            // of the expression that is being read
}

// The slots of what every session sets itself.
const (
	clientSlot = iota
	seedSlot
	defaultSeedSlot
)

func (p *parser) define(defined map[string]string) error {
	s := p.script
	for _, name := range []string{"client_id", "random_seed", "default_seed"} { // in the order of their slots
		p.slot(name)
	}
	s.start[p.slot("scale")] = slot{value: integer(1)}
	names := make([]string, 0, len(defined))
	for name := range defined {
		names = append(names, name)
	}
	sort.Strings(names) // the slots, and the error of several, don't depend on the map's order
	for _, name := range names {
		if !isName(name) {
			return fmt.Errorf("a variable can't be named %q: take letters, digits and underscores", name)
		}
		if strings.IndexByte(defined[name], 0) >= 0 {
			return fmt.Errorf("the variable %s holds %w", name, errNUL)
		}
		i := p.slot(name)
		s.start[i], p.words[i] = definedAs(defined[name])
	}
	return nil
}

// slot is where a variable is kept, from now on.
func (p *parser) slot(name string) int {
	i, ok := p.slots[name]
	if !ok {
		i = len(p.script.names)
		p.slots[name] = i
		p.script.names = append(p.script.names, name)
		p.script.start = append(p.script.start, slot{})
	}
	return i
}

// use finds a variable that must have been set above.
func (p *parser) use(at int, name string) (Var, error) {
	i, ok := p.slots[name]
	if !ok {
		return Var{}, p.fail(at, "unknown variable :%s: set above are %s", name, p.known())
	}
	return Var{Name: name, slot: i}, nil
}

// number is use where only a number will do.
func (p *parser) number(at int, command, name string) (Var, error) {
	v, err := p.use(at, name)
	if err == nil && p.words[v.slot] {
		err = p.fail(at, `\%s: the variable :%s is not a number`, command, name)
	}
	return v, err
}

func (p *parser) known() string {
	names := make([]string, 0, len(p.slots))
	for name := range p.slots {
		names = append(names, name)
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

// next reads a command; nil at the end.
func (p *parser) next() (Command, error) {
	p.skipBlank()
	switch {
	case p.pos >= len(p.text):
		return nil, nil
	case p.text[p.pos] == '\\':
		return p.meta()
	default:
		return p.statement()
	}
}
