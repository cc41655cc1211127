package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/migrations"
)

// migrateCmd is `dblock migrate`.
type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Create the tables, or bring them up to date. Safe to run from many places at once."`
	Down   migrateDownCmd   `cmd:"" help:"Undo the newest migration, or all: drops tables, with their data."`
	Status migrateStatusCmd `cmd:"" help:"List the migrations and which are applied. Writes nothing."`
	SQL    migrateSQLCmd    `cmd:"" name:"sql" help:"Print the migrations, to paste them into your own. Needs no server."`
}

type lockFlags struct {
	LockTimeout time.Duration `default:"1m" help:"How long to wait for another process that migrates."`
}

type migrateUpCmd struct {
	databaseFlags
	lockFlags
}

// Run prints a line for each migration that was applied.
func (c *migrateUpCmd) Run(ctx context.Context, s streams) (err error) {
	db, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	list, err := migrations.Up(ctx, db, migrations.Options{Schema: c.Schema, LockTimeout: c.LockTimeout})
	if printErr := printApplied(s.out, "applied", list); err != nil || printErr != nil {
		return errors.Join(err, printErr)
	}
	if len(list) == 0 {
		_, err = fmt.Fprintf(s.out, "up to date: version %d\n", schema.Version)
	}
	return err
}

type migrateDownCmd struct {
	databaseFlags
	lockFlags
	All bool `help:"Undo all migrations instead of the newest."`
	Yes bool `help:"Don't ask whether the data may go."`
}

// Run asks first: what it drops is gone.
func (c *migrateDownCmd) Run(ctx context.Context, s streams) (err error) {
	db, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if !c.Yes {
		if err := confirm(s); err != nil {
			return err
		}
	}
	opts := migrations.Options{Schema: c.Schema, LockTimeout: c.LockTimeout}
	var list []migrations.Applied
	if c.All {
		list, err = migrations.DownTo(ctx, db, 0, opts)
	} else {
		list, err = migrations.Down(ctx, db, opts)
	}
	if printErr := printApplied(s.out, "undone", list); err != nil || printErr != nil {
		return errors.Join(err, printErr)
	}
	if len(list) == 0 {
		_, err = fmt.Fprintln(s.out, "nothing to undo: there are no tables")
	}
	return err
}

var errNotConfirmed = errors.New("nothing was dropped: it needs a yes, on a terminal or by --yes")

func confirm(s streams) error {
	if !s.terminal {
		return errNotConfirmed
	}
	if _, err := fmt.Fprint(s.err, "This drops dblock's tables with all stock and reservations in them. Type yes to go on: "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(s.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(answer) != "yes" {
		return errNotConfirmed
	}
	return nil
}

type migrateStatusCmd struct {
	databaseFlags
	JSON bool `name:"json" help:"Print JSON: version has, want, and the list of migrations."`
}

type status struct {
	Have       int64                  `json:"have"` // newest version in the database, 0 without tables
	Want       int64                  `json:"want"` // newest version this program knows
	Migrations []migrations.Migration `json:"migrations"`
}

// Run prints the same for a person or a program.
func (c *migrateStatusCmd) Run(ctx context.Context, s streams) (err error) {
	db, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	list, err := migrations.Status(ctx, db, migrations.Options{Schema: c.Schema})
	if err != nil {
		return err
	}
	now := status{Want: schema.Version, Migrations: list}
	for _, m := range list {
		if m.Applied {
			now.Have = max(now.Have, m.Version)
		}
	}
	if c.JSON {
		return printJSON(s.out, now)
	}
	return now.print(s.out)
}

func (s status) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, m := range s.Migrations {
		state, name := "pending", m.Name
		if m.Applied {
			state = "applied"
		}
		if m.Begun {
			state = "begun" // and not completed
		}
		if name == "" {
			name = fmt.Sprintf("version %d: newer than this program", m.Version)
		}
		// The writer keeps the first error for Flush.
		_, _ = fmt.Fprintf(table, "%s\t%s\n", state, name)
	}
	return table.Flush()
}

type migrateSQLCmd struct {
	Engine string `required:"" enum:"postgres,mysql" help:"Server: postgres, or mysql (MariaDB too)."`
	Format string `default:"plain" enum:"plain,goose" help:"Format: plain, or goose, which is one file with both directions."`
	Schema string `placeholder:"NAME" help:"Schema of the tables. Default: that of the connection."`
	Down   bool   `help:"Print what drops the tables, with their data. For the format plain only."`
}

// Validate is called while the arguments are parsed.
func (c *migrateSQLCmd) Validate() error {
	if c.Down && c.Format == string(migrations.Goose) {
		return errors.New("--down goes with --format plain only: the goose file has both directions")
	}
	return nil
}

// Run needs no server.
func (c *migrateSQLCmd) Run(s streams) error {
	format := migrations.Format(c.Format)
	if c.Down {
		format = migrations.PlainDown
	}
	text, err := migrations.SQL(migrations.Engine(c.Engine), format, c.Schema)
	if err == nil {
		_, err = io.WriteString(s.out, text)
	}
	return err
}

func printApplied(out io.Writer, verb string, list []migrations.Applied) error {
	for _, a := range list {
		if _, err := fmt.Fprintf(out, "%s %s (%v)\n", verb, a.Name, a.Took.Round(time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}
