package faultmatrix

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

// Flags of `make faults-report`, which stand behind -args. They replace the tests by a report.
var (
	reports  = flag.Bool("report", false, "measure the matrix, and write it down, instead of the tests")
	engines  = flag.String("engines", "postgres,mariadb,mysql", "comma list of the engines")
	perFault = flag.Int("runs", 3, "runs of each fault on each engine")
	most     = flag.Duration("for", 0, "begin no second run of a fault after this time; 0: no bound")
	only     = flag.String("only", "", "a regular expression: run the faults that it matches")
	asJSON   = flag.String("json", "", "write the results to this file")
	markdown = flag.String("markdown", "", "write the tables to this file")
	earlier  = flag.String("add", "", "comma list of JSON files of earlier runs, which are added")
)

// report measures the matrix and writes it down, as the flags say.
func report() error {
	var kinds []Kind
	for name := range strings.SplitSeq(*engines, ",") {
		kinds = append(kinds, Kind(strings.TrimSpace(name)))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	logf := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	m, err := Measure(ctx, Options{Kinds: kinds, Runs: *perFault, Only: *only, For: *most, Logf: logf})
	if m == nil {
		return err
	}
	errs := []error{err}
	for _, path := range strings.FieldsFunc(*earlier, func(r rune) bool { return r == ',' }) {
		errs = append(errs, add(m, path))
	}
	errs = append(errs, m.write())
	for _, text := range m.Problems() {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// write writes the files that the flags name.
func (m *Matrix) write() error {
	if *asJSON != "" {
		text, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*asJSON, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if *markdown == "" {
		return nil
	}
	return os.WriteFile(*markdown, []byte(m.Markdown()), 0o644)
}

// add adds the runs that a file has.
func add(m *Matrix, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	other := new(Matrix)
	if err := json.Unmarshal(text, other); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	m.Add(other)
	return nil
}
