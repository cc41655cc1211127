package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/doctor"
	"github.com/dblock-go/dblock/internal/schema"
)

// doctorCmd is `dblock doctor`.
type doctorCmd struct {
	databaseFlags
	JSON    bool          `name:"json" help:"Print JSON: the same findings, for a program."`
	Timeout time.Duration `default:"30s" help:"How long to wait for the server's answers."`
}

// Run prints what was found; that there are problems is an error, too, for the exit status.
func (c *doctorCmd) Run(ctx context.Context, s streams) error {
	if c.Timeout <= 0 {
		return &dblock.InvalidError{Field: "--timeout", Reason: fmt.Sprintf("%v is no time to wait", c.Timeout)}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	r, err := c.examine(ctx)
	if err != nil {
		return err
	}
	show := printReport
	if c.JSON {
		show = func(out io.Writer, r doctor.Report) error { return printJSON(out, r) }
	}
	if err := show(s.out, r); err != nil {
		return err
	}
	return problems(r)
}

func (c *doctorCmd) examine(ctx context.Context) (doctor.Report, error) {
	checkName := schema.CheckMySQLName
	if c.isPostgres() {
		checkName = schema.CheckPostgresName
	}
	if err := checkName(c.Schema); err != nil {
		return doctor.Report{}, &dblock.InvalidError{Field: "--schema", Reason: err.Error()}
	}
	if c.isPostgres() {
		config, err := c.postgresConfig()
		if err != nil {
			return doctor.Report{}, err
		}
		return doctor.Postgres(ctx, config.ConnConfig, c.Schema), nil
	}
	config, err := c.mysqlConfig()
	if err != nil {
		return doctor.Report{}, err
	}
	return doctor.MySQL(ctx, config, c.Schema), nil
}

// printReport has a line a finding, and below it what to do.
func printReport(out io.Writer, r doctor.Report) error {
	if _, err := fmt.Fprintf(out, "%s: %s\n\n", printable(r.Target), cmp.Or(r.Server, "not reached")); err != nil {
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		// The writer keeps the first error for Flush.
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", f.Status, f.Check, f.Found)
		if f.Advice != "" {
			_, _ = fmt.Fprintf(t, "\t\t-> %s\n", f.Advice)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nproblems: %d, warnings: %d\n", r.Problems, r.Warnings)
	return err
}

// problems is nil if there are none.
func problems(r doctor.Report) error {
	if r.Problems == 0 {
		return nil
	}
	var of []string
	for _, f := range r.Findings {
		if f.Status == doctor.Problem && !slices.Contains(of, f.Check) {
			of = append(of, f.Check)
		}
	}
	return fmt.Errorf("the database will not do as it is: %s", strings.Join(of, ", "))
}
