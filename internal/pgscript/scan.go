package pgscript

import (
	"errors"
	"fmt"
	"strings"
)

// scanner goes through the text of a script.
type scanner struct {
	file, text string
	pos        int

	countedTo, lines int // so that a long file's lines are counted once
}

// lineOf is the number of the line that holds a position, from 1 on.
func (s *scanner) lineOf(at int) line {
	at = min(at, len(s.text))
	if at < s.countedTo {
		s.countedTo, s.lines = 0, 0
	}
	s.lines += strings.Count(s.text[s.countedTo:at], "\n")
	s.countedTo = at
	return line(s.lines + 1)
}

func (s *scanner) fail(at int, format string, args ...any) error {
	return &Error{File: s.file, Line: s.lineOf(at).At(), Err: fmt.Errorf(format, args...)}
}

// rest tells whether the text goes on with that.
func (s *scanner) rest(prefix string) bool { return strings.HasPrefix(s.text[s.pos:], prefix) }

// at is the byte so far ahead; 0, which no script holds, behind the end.
func (s *scanner) at(ahead int) byte {
	if s.pos+ahead >= len(s.text) {
		return 0
	}
	return s.text[s.pos+ahead]
}

// skipBlank skips white space and comments of one line.
func (s *scanner) skipBlank() {
	for s.pos < len(s.text) {
		switch {
		case isSpace(s.text[s.pos]):
			s.pos++
		case s.rest("--"):
			s.skipLine()
		default:
			return
		}
	}
}

// skipLine goes to the end of the line, and leaves the newline.
func (s *scanner) skipLine() {
	if n := strings.IndexByte(s.text[s.pos:], '\n'); n >= 0 {
		s.pos += n
		return
	}
	s.pos = len(s.text)
}

var (
	errOpenQuote   = errors.New("a quoted text that does not end")
	errOpenComment = errors.New("a comment that does not end")
)

// skipQuoted goes behind what the quote at the position opens. Twice the quote is the quote, which
// needs no care: it is two quoted texts in a row.
func (s *scanner) skipQuoted() error {
	start := s.pos
	n := strings.IndexByte(s.text[start+1:], s.text[start])
	if n < 0 {
		return s.fail(start, "%w: the %c has no other", errOpenQuote, s.text[start])
	}
	s.pos = start + n + 2
	return nil
}

// skipEscaped goes behind the rest of an E'…', from its quote on. There a backslash takes the next
// byte with it, and that holds as well for what continues the text on the next line.
func (s *scanner) skipEscaped() error {
	for start := s.pos; ; {
		for s.pos++; ; s.pos++ {
			if s.pos >= len(s.text) {
				return s.fail(start, "%w: the ' has no other", errOpenQuote)
			}
			if s.text[s.pos] == '\\' {
				s.pos++
			} else if s.text[s.pos] == '\'' {
				break
			}
		}
		s.pos++
		if s.at(0) == '\'' { // a doubled quote
			continue
		}
		end := s.pos
		s.skipBlank()
		if s.at(0) != '\'' || !strings.Contains(s.text[end:s.pos], "\n") {
			s.pos = end
			return nil
		}
	}
}

// skipDollar goes behind a $tag$ … $tag$; false when there is none.
func (s *scanner) skipDollar() (bool, error) {
	n := 1
	for isNameByte(s.at(n)) && (n > 1 || !isDigit(s.at(n))) {
		n++
	}
	if s.at(n) != '$' {
		return false, nil
	}
	tag := s.text[s.pos : s.pos+n+1]
	end := strings.Index(s.text[s.pos+len(tag):], tag)
	if end < 0 {
		return false, s.fail(s.pos, "%w: the %s has no other", errOpenQuote, tag)
	}
	s.pos += end + 2*len(tag)
	return true, nil
}

// skipComment goes behind a comment, which may hold others.
func (s *scanner) skipComment() error {
	start := s.pos
	for depth := 0; ; {
		switch {
		case s.pos >= len(s.text):
			return s.fail(start, "%w: the /* has no */", errOpenComment)
		case s.rest("/*"):
			depth++
			s.pos += 2
		case s.rest("*/"):
			depth--
			s.pos += 2
			if depth == 0 {
				return nil
			}
		default:
			s.pos++
		}
	}
}

// word takes an identifier or a keyword; SQL allows a $ in it.
func (s *scanner) word() string {
	start := s.pos
	for isNameByte(s.at(0)) || s.at(0) == '$' {
		s.pos++
	}
	return s.text[start:s.pos]
}

// name takes a variable's name; "" when there is none.
func (s *scanner) name() string {
	start := s.pos
	if isDigit(s.at(0)) {
		return ""
	}
	for isNameByte(s.at(0)) {
		s.pos++
	}
	return s.text[start:s.pos]
}

// isName tells whether a variable may be named like that.
func isName(name string) bool {
	s := scanner{text: name}
	return name != "" && s.name() == name
}

func isSpace(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// isNameByte takes every byte of a letter outside of ASCII for one, as Postgres does.
func isNameByte(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || isDigit(b) || b == '_' || b >= 0x80
}
