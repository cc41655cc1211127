// Package doctor checks whether a database meets dblock's requirements. Postgres and MySQL collect
// facts from a server, and Evaluate makes findings of them. The checks are engine-free and need no
// server.
package doctor

import (
	"fmt"
	"strings"
	"unicode"
)

// Status is how bad a finding is.
type Status string

const (
	OK      Status = "ok"
	Note    Status = "note"    // good to know; nothing need be done
	Warning Status = "warning" // works, and may surprise
	Problem Status = "problem" // does not work, or does not do what it promises
)

// Finding is what one check found. A check may have several.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Advice string `json:"advice"` // what to do; "" if there is nothing to do
}

// Report is all that was found, in the order of the checks.
type Report struct {
	Engine   string    `json:"engine"` // postgres or mysql, which is MariaDB too
	Server   string    `json:"server"` // product and version; "" if none was reached
	Target   string    `json:"target"` // host, port and database, as the DSN has them; never a password
	Problems int       `json:"problems"`
	Warnings int       `json:"warnings"`
	Findings []Finding `json:"findings"`
}

// Checks names all checks, in their order. docs/doctor.md has a section on each.
func Checks() []string {
	names := make([]string, 0, len(checks)+1)
	names = append(names, connection)
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// connection is the check that comes before there are facts.
const connection = "connection"

// check makes findings of facts. None is that it does not apply.
type check struct {
	name     string
	foreign  bool // it is made of any product, also of one about which no more is known
	evaluate func(Facts) []Finding
}

var checks = []check{
	{"server", true, server},
	{"writes", false, writes},
	{"charset", false, charset},
	{"pooler", false, pooler},
	{"schema", false, tablesVersion},
	{"tables", false, tables},
	{"grants", false, grants},
	{pathCheck, false, searchPath},
	{"durability", false, durability},
	{"clock", false, clock},
	{"timeouts", false, timeouts},
	{"isolation", false, isolation},
	{"connections", false, connections},
	{"lock_table", false, lockTable},
	{"session_locks", true, sessionLocks},
}

// Evaluate makes the report of a server that was asked.
func Evaluate(f Facts) Report {
	r := Report{Engine: f.Engine, Server: strings.TrimSpace(f.Product + " " + f.Version), Target: f.Target}
	r.add(connection, []Finding{fine(fmt.Sprintf("database %q as %q", f.Database, f.User))})
	for _, c := range checks {
		if f.Known || c.foreign {
			r.add(c.name, c.evaluate(f))
		}
	}
	return r
}

func (r *Report) add(check string, found []Finding) {
	for _, f := range found {
		f.Check, f.Found, f.Advice = check, harmless(f.Found), harmless(f.Advice)
		r.Findings = append(r.Findings, f)
		switch f.Status {
		case Problem:
			r.Problems++
		case Warning:
			r.Warnings++
		}
	}
}

// harmless keeps what others have chosen, names and errors, from playing with a terminal.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

func fine(found string) Finding { return Finding{Status: OK, Found: found} }

func finding(s Status, found, advice string) Finding {
	return Finding{Status: s, Found: found, Advice: advice}
}

// orFine is what a check says that found nothing worth a word.
func orFine(list []Finding, found string) []Finding {
	if len(list) == 0 {
		return []Finding{fine(found)}
	}
	return list
}
