// Command report runs the fault matrix and writes it down: `make faults-report`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/dblock-go/dblock/internal/faultmatrix"
)

func main() {
	faultmatrix.Main()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run() error {
	engines := flag.String("engines", "postgres,mariadb,mysql", "comma list of the engines")
	runs := flag.Int("runs", 3, "runs of each fault on each engine")
	most := flag.Duration("for", 0, "begin no second run of a fault after this time; 0: no bound")
	only := flag.String("only", "", "a regular expression: run the faults that it matches")
	asJSON := flag.String("json", "", "write the results to this file")
	markdown := flag.String("markdown", "", "write the tables to this file")
	earlier := flag.String("add", "", "comma list of JSON files of earlier runs, which are added")
	flag.Parse()
	var kinds []faultmatrix.Kind
	for name := range strings.SplitSeq(*engines, ",") {
		kinds = append(kinds, faultmatrix.Kind(strings.TrimSpace(name)))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	logf := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	m, err := faultmatrix.Measure(ctx, faultmatrix.Options{Kinds: kinds, Runs: *runs, Only: *only, For: *most, Logf: logf})
	if m == nil {
		return err
	}
	errs := []error{err}
	for _, path := range strings.FieldsFunc(*earlier, func(r rune) bool { return r == ',' }) {
		errs = append(errs, add(m, path))
	}
	if *asJSON != "" {
		text, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*asJSON, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if *markdown != "" {
		if err := os.WriteFile(*markdown, []byte(m.Markdown()), 0o644); err != nil {
			return err
		}
	}
	for _, text := range m.Problems() {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// add adds the runs that a file has.
func add(m *faultmatrix.Matrix, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	other := new(faultmatrix.Matrix)
	if err := json.Unmarshal(text, other); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	m.Add(other)
	return nil
}
