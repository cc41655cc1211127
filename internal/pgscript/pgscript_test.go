package pgscript

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func parse(t *testing.T, text string) *Script {
	t.Helper()
	s, err := Parse("file.sql", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// show is a script in a form to compare.
func show(s *Script) []string {
	var lines []string
	for _, c := range s.Commands {
		text := ""
		switch c := c.(type) {
		case *Set:
			text = "set " + c.Name
		case *Sleep:
			text = fmt.Sprint("sleep ", c.duration(c.n))
		case *SQL:
			text = c.Text
			for _, v := range c.Vars {
				text += " <" + v.Name + ">"
			}
		}
		lines = append(lines, fmt.Sprintf("%d: %s", c.At(), text))
	}
	return lines
}

func TestCommands(t *testing.T) {
	t.Parallel()
	const a = "\\set a 1\n\\set b 2\n" // two commands, two lines
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"one statement":         {"SELECT 1;", []string{"1: SELECT 1"}},
		"no semicolon":          {"SELECT 1", []string{"1: SELECT 1"}},
		"nothing":               {";", []string{"1: "}},
		"several on a line":     {"BEGIN; SELECT 1;COMMIT;", []string{"1: BEGIN", "1: SELECT 1", "1: COMMIT"}},
		"blank lines":           {"\n\n  SELECT 1;\n\n\nSELECT 2;\n\n", []string{"3: SELECT 1", "6: SELECT 2"}},
		"carriage returns":      {"\\set x 1\r\nSELECT 1;\r\nSELECT\r\n2;\r\n", []string{"1: set x", "2: SELECT 1", "3: SELECT\r\n2"}},
		"comments above":        {"-- a; b\n--c\nSELECT 1;", []string{"3: SELECT 1"}},
		"comment behind":        {"SELECT 1; -- it's; done\nSELECT 2;", []string{"1: SELECT 1", "2: SELECT 2"}},
		"comment inside":        {"SELECT -- it's; 1\n2;", []string{"1: SELECT -- it's; 1\n2"}},
		"comment of lines":      {"SELECT /* ; ' \n */ 1;\nSELECT 2;", []string{"1: SELECT /* ; ' \n */ 1", "3: SELECT 2"}},
		"comments in a comment": {"SELECT /* /* ; */ ; */ 1;", []string{"1: SELECT /* /* ; */ ; */ 1"}},
		"quoted":                {`SELECT 'a;b', 'it''s;', 'back\';`, []string{`1: SELECT 'a;b', 'it''s;', 'back\'`}},
		"escapes":               {`SELECT E'it\'s;', e'\\';SELECT 2`, []string{`1: SELECT E'it\'s;', e'\\'`, "1: SELECT 2"}},
		"escapes go on":         {"SELECT E'a'\n'\\';', 1;", []string{"1: SELECT E'a'\n'\\';', 1"}},
		"escapes that end":      {`SELECT E'a' '\'; SELECT 2`, []string{`1: SELECT E'a' '\'`, "1: SELECT 2"}},
		"a word that ends in e": {`SELECT date'\';SELECT 2`, []string{`1: SELECT date'\'`, "1: SELECT 2"}},
		"quoted names":          {`SELECT ";" FROM "a""b;";`, []string{`1: SELECT ";" FROM "a""b;"`}},
		"names of MySQL":        {"SELECT `a;b`;", []string{"1: SELECT `a;b`"}},
		"dollar quotes":         {"SELECT $$;'$$, $a_1$ ; $$ $a$ $a_1$;", []string{"1: SELECT $$;'$$, $a_1$ ; $$ $a$ $a_1$"}},
		"dollar in a name":      {"SELECT a$b$;c", []string{"1: SELECT a$b$", "1: c"}},
		"parentheses":           {"CREATE RULE r AS ON INSERT TO a DO (SELECT 1; SELECT 2);", []string{"1: CREATE RULE r AS ON INSERT TO a DO (SELECT 1; SELECT 2)"}},
		"too many parentheses":  {"SELECT 1);SELECT 2;", []string{"1: SELECT 1)", "1: SELECT 2"}},
		"a body": {
			"CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END; SELECT 3",
			[]string{"1: CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END", "1: SELECT 3"},
		},
		"no body":          {"CREATE TABLE f(a int); BEGIN; END;", []string{"1: CREATE TABLE f(a int)", "1: BEGIN", "1: END"}},
		"variables":        {a + "SELECT :a+:b, :a;", []string{"1: set a", "2: set b", "3: SELECT $1+$2, $3 <a> <b> <a>"}},
		"casts":            {a + "SELECT :a::int, '1'::text;", []string{"1: set a", "2: set b", "3: SELECT $1::int, '1'::text <a>"}},
		"other colons":     {a + "SELECT a[1:2], a[:a:3], f(x := :b), ':a', \":a\", $$:a$$, E':a', /* :a */ 1 -- :a\n;", []string{"1: set a", "2: set b", "3: SELECT a[1:2], a[$1:3], f(x := $2), ':a', \":a\", $$:a$$, E':a', /* :a */ 1 -- :a <a> <b>"}},
		"at the very end":  {a + "SELECT :a", []string{"1: set a", "2: set b", "3: SELECT $1 <a>"}},
		"automatic":        {"SELECT :client_id, :random_seed, :default_seed, :scale", []string{"1: SELECT $1, $2, $3, $4 <client_id> <random_seed> <default_seed> <scale>"}},
		"SQL before a set": {"SELECT 1\n\\set a 1\nSELECT :a", []string{"1: SELECT 1", "2: set a", "3: SELECT $1 <a>"}},
		"continued":        {"\\set a 1 + \\\n 2 \\\r\n + 3\nSELECT 1", []string{"1: set a", "4: SELECT 1"}},
		"capitals":         {"\\SET a 1\n\\Sleep 1 MS", []string{"1: set a", "2: sleep 1ms"}},
		"sleeps":           {"\\sleep 2\n\\sleep 3 us\n\\sleep 4ms\n\\sleep 5 \\\n s\n\\sleep -1", []string{"1: sleep 2s", "2: sleep 3µs", "3: sleep 4ms", "4: sleep 5s", "6: sleep 0s"}},
		"letters":          {"\\set größe 1\nSELECT :größe", []string{"1: set größe", "2: SELECT $1 <größe>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, show(parse(t, tt.text))); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestMistakesHaveTheirLine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"empty":                {"", "file.sql:1: no command"},
		"only comments":        {"\n-- nothing\n", "file.sql:1: no command"},
		"zero byte":            {"SELECT 1;\n\x00", "file.sql:2: a byte 0"},
		"open quote":           {"SELECT 1;\nSELECT 'a;\n\n", "file.sql:2: a quoted text that does not end"},
		"open escape":          {"\nSELECT E'\\';", "file.sql:2: a quoted text that does not end"},
		"escape at the end":    {"SELECT E'\\", "file.sql:1: a quoted text that does not end"},
		"open dollar":          {"\n\nSELECT $a$ $$", "file.sql:3: a quoted text that does not end: the $a$"},
		"open comment":         {"SELECT 1\n/* /* */", "file.sql:2: a comment that does not end"},
		"parameter":            {"SELECT\n$1", "file.sql:2: a script has no parameters"},
		"unknown variable":     {"SELECT 1,\n\n:b", "file.sql:3: unknown variable :b: set above are client_id, default_seed, random_seed, scale"},
		"set below":            {"SELECT :b;\n\\set b 1", "file.sql:1: unknown variable :b"},
		"set by itself":        {"\\set b :b + 1", "file.sql:1: unknown variable :b"},
		"unknown command":      {"SELECT 1;\n\\sett a 1", `file.sql:2: \sett: unknown meta command: there are \set and \sleep`},
		"command of pgbench":   {"\\if 1\n", `file.sql:1: \if is not supported`},
		"command behind SQL":   {"SELECT 1 \\gset", `file.sql:1: \gset is not supported`},
		"no command":           {"\\ set a 1", `file.sql:1: no command after the \`},
		"no name":              {"\\set\nSELECT 1", `file.sql:1: \set: the name of a variable is missing`},
		"no expression":        {"\\set a\nSELECT 1", `file.sql:1: \set a: the expression is missing`},
		"bad name":             {"\\set 1a 1", `file.sql:1: \set: a variable can't be named "1a"`},
		"worse name":           {"\\set :a 1", `file.sql:1: \set: a variable can't be named ":a"`},
		"unknown function":     {"\n\n\\set a rnd(1)", `file.sql:3: \set: unknown function "rnd": there are abs, double, `},
		"no function":          {"\\set a b", `file.sql:1: \set: unknown function "b"`},
		"no parenthesis":       {"\\set a random", `file.sql:1: \set: the expression ends too early`},
		"open parenthesis":     {"\\set a (1 + 2\nSELECT 1", `file.sql:1: \set: the expression ends too early`},
		"too many":             {"\\set a 1)", `file.sql:1: \set: unexpected ")"`},
		"two numbers":          {"\\set a 1 2", `file.sql:1: \set: unexpected "2"`},
		"no operand":           {"\\set a 1 +", `file.sql:1: \set: the expression ends too early`},
		"two operators":        {"\\set a 1 * / 2", `file.sql:1: \set: unexpected "/"`},
		"operator of pgbench":  {"\\set a 1 <= 2", `file.sql:1: \set: unexpected "<"`},
		"on the next line":     {"\\set a 1 + \\\n  \\\n $", `file.sql:3: \set: unexpected "$"`},
		"no argument":          {"\\set a abs()", `file.sql:1: \set: abs takes 1 argument, not 0`},
		"arguments":            {"\\set a pi(1)", `file.sql:1: \set: pi takes no arguments, not 1`},
		"more arguments":       {"\\set a random(1)", `file.sql:1: \set: random takes 2 arguments, not 1`},
		"any arguments":        {"\\set a least()", `file.sql:1: \set: least takes one argument or more, not 0`},
		"no comma":             {"\\set a random(1 2)", `file.sql:1: \set: unexpected "2"`},
		"only a comma":         {"\\set a random(1,", `file.sql:1: \set: the expression ends too early`},
		"comma at the end":     {"\\set a abs(1,)", `file.sql:1: \set: unexpected ")"`},
		"not a number":         {"\\set a 1x", `file.sql:1: \set: unexpected "1x"`},
		"a point":              {"\\set a .", `file.sql:1: \set: unexpected "."`},
		"too large":            {"\\set a 9223372036854775808", `file.sql:1: \set: 9223372036854775808 is out of the range of integers`},
		"too small":            {"\\set a -9223372036854775809", `file.sql:1: \set: 9223372036854775809 is out of the range of integers`},
		"too large a double":   {"\\set a 1e400", `file.sql:1: \set: 1e400 is out of the range of doubles`},
		"unknown in a set":     {"\\set a 1\n\\set b :a + \\\n:c", `file.sql:3: unknown variable :c: set above are a, `},
		"a colon":              {"\\set a : b", `file.sql:1: \set: unexpected ":"`},
		"too deep":             {"\\set a " + strings.Repeat("(", 5000), `file.sql:1: \set: an expression that is nested`},
		"too long":             {"\\set a 1" + strings.Repeat("+1", 5000), `file.sql:1: \set: an expression that is nested`},
		"no time":              {"\\sleep", `file.sql:1: \sleep takes one or two words, not 0`},
		"too many times":       {"\\sleep 1 s 2", `file.sql:1: \sleep takes one or two words, not 3`},
		"no number":            {"\\sleep a s", `file.sql:1: \sleep: "a" is no whole number`},
		"a fraction":           {"\\sleep 1.5 s", `file.sql:1: \sleep: "1.5" is no whole number`},
		"unknown unit":         {"\\sleep 1 h", `file.sql:1: \sleep: unknown unit "h"`},
		"two units":            {"\\sleep 1s s", `file.sql:1: \sleep: two units`},
		"unknown sleep":        {"\\sleep :d s", `file.sql:1: unknown variable :d`},
		"unknown unit of time": {"\\sleep :scale 5", `file.sql:1: \sleep: unknown unit "5"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("file.sql", tt.text, nil)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestQuestionMarks(t *testing.T) {
	t.Parallel()
	s := parse(t, "\\set a 1\nUPDATE t SET x = :a, y = ':a' WHERE z = :a;")
	const want = "UPDATE t SET x = ?, y = ':a' WHERE z = ?"
	if got := s.Commands[1].(*SQL).Question; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStatementsArePlain(t *testing.T) {
	t.Parallel()
	all, err := Statements("setup.sql", "CREATE TABLE t (a int);\n-- :no\nINSERT INTO t VALUES (':x'::int),\n(a[:y], $1);;\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, q := range all {
		got = append(got, fmt.Sprint(q.At(), " ", q.Text))
	}
	if diff := cmp.Diff([]string{"1 CREATE TABLE t (a int)", "3 INSERT INTO t VALUES (':x'::int),\n(a[:y], $1)"}, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	for text, want := range map[string]string{
		"SELECT 1;\n\\set a 1": `setup.sql:2: \set: only plain SQL can stand here`,
		"\n\x00":               "setup.sql:2: a byte 0",
		"SELECT 'a":            "setup.sql:1: a quoted text that does not end",
	} {
		if _, err := Statements("setup.sql", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestSleepOfAVariable(t *testing.T) {
	t.Parallel()
	s := parse(t, "\\set d 2.5\n\\sleep :d ms\n\\set d 1e30\n\\sleep :d\n\\set d 9e18\n\\sleep :d s")
	v := s.Session(0, 1)
	run := func(i int) (time.Duration, error) {
		if err := v.Set(s.Commands[i].(*Set)); err != nil {
			t.Fatal(err)
		}
		return v.Sleep(s.Commands[i+1].(*Sleep))
	}
	if d, err := run(0); d != 2*time.Millisecond || err != nil {
		t.Errorf("got %v, %v", d, err)
	}
	if _, err := run(2); !errors.Is(err, errNoInteger) || !strings.HasPrefix(err.Error(), `file.sql:4: \sleep :d: `) {
		t.Errorf("got %v", err)
	}
	if d, err := run(4); d < 100*365*24*time.Hour || err != nil {
		t.Errorf("got %v, %v", d, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"\\set aid random(1, 100000 * :scale)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n",
		"SELECT E'a\\''\n'b', $a$ $a$, /* /* */ */ \"x\"; \\sleep 1ms\n-- c\n\\set a -(1.5e3 % 2) \\\n + greatest(1, :scale)\nSELECT :a::int",
		"CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END;",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = Statements("file.sql", text)
		s, err := Parse("file.sql", text, map[string]string{"word": "x"})
		if err != nil {
			if located := new(Error); !errors.As(err, &located) || located.Line < 1 || located.Line > 1+strings.Count(text, "\n") {
				t.Fatalf("no line of the text: %v", err)
			}
			return
		}
		v := s.Session(1, 2)
		for _, c := range s.Commands {
			switch c := c.(type) {
			case *Set:
				_ = v.Set(c)
			case *Sleep:
				_, _ = v.Sleep(c)
			case *SQL:
				for _, of := range c.Vars {
					_, _ = v.Append(nil, of), v.Value(of)
				}
			}
		}
	})
}
