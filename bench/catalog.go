package bench

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/agnivade/levenshtein"
)

// Scenarios returns all that dblock has, sorted by family.
func Scenarios() []Scenario {
	return slices.Concat(claims(), handovers(), leases(), optimists(), queues(), sessions(), seckill(), limits())
}

// list names every scenario, and those that only --file has.
func list(out io.Writer, all []Scenario) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range slices.Concat(all, scripts(scriptFlags{file: "FILE.sql"}), scripts(scriptFlags{file: "FILE.lua"})) {
		on := joined(s.Engines)
		if on == "" {
			on = "any engine"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t(%s)\n", s.Name, s.About, on)
	}
	return t.Flush()
}

// find returns the scenario of that name, or those that fit a pattern.
func find(all []Scenario, name string) ([]Scenario, error) {
	var found []Scenario
	for _, s := range all {
		if ok, err := path.Match(name, s.Name); err != nil {
			return nil, fmt.Errorf("scenario %q: %w", name, err)
		} else if ok {
			found = append(found, s)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	switch {
	case isScript(name):
		return nil, fmt.Errorf("scenario %q runs a script: give its file with --file", name)
	case strings.ContainsAny(name, "*?["):
		return nil, fmt.Errorf("no scenario fits %q; --list names all", name)
	default:
		return nil, fmt.Errorf("there is no scenario %q; did you mean %q? --list names all", name, nearest(all, name))
	}
}

func nearest(all []Scenario, name string) string {
	return slices.MinFunc(all, func(a, b Scenario) int {
		return levenshtein.ComputeDistance(name, a.Name) - levenshtein.ComputeDistance(name, b.Name)
	}).Name
}
