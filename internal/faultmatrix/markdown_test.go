package faultmatrix

import (
	"fmt"
	"slices"
	"strings"
)

var engineNames = map[Kind]string{"postgres": "Postgres", "mariadb": "MariaDB", "mysql": "MySQL"}

// Markdown is the matrix as docs/faults.md has it.
func (m *Matrix) Markdown() string {
	var b strings.Builder
	var kinds []Kind
	var faults []string
	runs, ops, strikes, broken := 0, 0, 0, 0
	for _, c := range m.Cells {
		runs, ops, strikes = runs+c.Runs, ops+c.Ops, strikes+c.Strikes
		for _, n := range c.Violations {
			broken += n
		}
		if !slices.Contains(kinds, c.Engine) {
			kinds = append(kinds, c.Engine)
		}
	}
	for _, f := range Faults() {
		if slices.ContainsFunc(m.Cells, func(c *Cell) bool { return c.Fault == f.Name }) {
			faults = append(faults, f.Name)
		}
	}
	fmt.Fprintf(&b, "# Faults\n\n<!-- Made by `make faults-report`. Do not edit. -->\n\n")
	fmt.Fprintf(&b, "%d faults, %d promises, %d engines: %d runs with %d strikes of the faults\nand %d calls. %s.\n\n",
		len(faults), int(promises), len(kinds), runs, strikes, ops, counted(broken, "violation"))
	b.WriteString(intro)
	b.WriteString("| promise | what is checked | what the control does instead |\n|---|---|---|\n")
	for _, p := range promiseText {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.name, p.promise, p.control)
	}
	for _, kind := range kinds {
		m.table(&b, kind, faults)
	}
	return b.String()
}

const intro = `A run is one workload in a database of its own, for a few seconds, in three processes: leases with
fences and guarded writes, session locks, jobs and orders. The fault strikes while it goes on.
Afterwards checkers read the logs of all processes, which share one clock, and the server's own
tables. A control runs beside the workload, under the same fault. It makes the same calls without
the protection, and the same checkers read it. How to repeat a run: [testing](testing.md).

A cell has two numbers: violations of dblock's promise, and violations by the control. *Strikes* is
how often the fault struck. A row without numbers is a fault that the engine cannot have. Errors of
the server that are named after it (statement timeout to server shuts down) replace one answer in
twelve; the server executes none of these statements.

`

func (m *Matrix) table(b *strings.Builder, kind Kind, faults []string) {
	fmt.Fprintf(b, "\n## %s %s\n\n| fault | runs | strikes |", engineNames[kind], m.Versions[kind])
	for _, p := range promiseText {
		fmt.Fprintf(b, " %s |", p.name)
	}
	b.WriteString("\n|---|--:|--:|" + strings.Repeat("--:|", int(promises)) + "\n")
	for _, fault := range faults {
		at := slices.IndexFunc(m.Cells, func(c *Cell) bool { return c.Fault == fault && c.Engine == kind })
		if at < 0 {
			fmt.Fprintf(b, "| %s |  |  |%s\n", fault, strings.Repeat("  |", int(promises)))
			continue
		}
		c := m.Cells[at]
		fmt.Fprintf(b, "| %s | %d | %d |", fault, c.Runs, c.Strikes)
		for p := range c.Violations {
			fmt.Fprintf(b, " %d / %d |", c.Violations[p], c.Control[p])
		}
		b.WriteString("\n")
	}
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
