package bench

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Flags are those of the command, with the tags that kong reads.
type Flags struct {
	Scenarios []string          `arg:"" optional:"" name:"scenario" help:"What to measure: names, or patterns such as 'seckill/*'. The others are held against the first. --list names all."`
	List      bool              `help:"Name every scenario and what it does."`
	Engine    []string          `help:"Servers: postgres, mariadb, mysql. Default: each that is found."`
	Clients   int               `short:"c" default:"64" help:"Clients at once."`
	Threads   int               `short:"j" placeholder:"N" help:"Threads that run Go code at once. Default: one a core."`
	Conns     int               `placeholder:"N" help:"Connections of each scenario. Default: what is best for it of the numbers that it knows, or one a client, at most 64."`
	Time      Seconds           `short:"T" default:"5s" help:"How long a round is, in seconds or as 1m30s."`
	Warmup    Seconds           `default:"1s" help:"How long each scenario runs before the first round. 0: not at all."`
	Rounds    int               `default:"3" help:"Rounds of each scenario, in turn."`
	Jobs      int               `placeholder:"N" help:"Jobs of each backlog that is burnt down, and at most so many in a batch: 5000, or 10000 in a call that is measured. Default: as many as take about --time, and 5000."`
	Progress  Seconds           `short:"P" placeholder:"SECONDS" help:"Print a line on stderr every so often while a round runs."`
	Rate      float64           `short:"R" placeholder:"N" help:"Operations a second of all clients together, at random moments; latencies count from the moment that an operation was due. Default: each client goes on when its last operation has ended."`
	Seed      uint64            `default:"1" help:"For whatever is random."`
	File      string            `placeholder:"FILE" help:"Script to run with another benchmark program, beside the scenarios: pgbench on Postgres, mariadb-slap or mysqlslap on MariaDB and MySQL; for a file that ends in .lua, sysbench."`
	Setup     string            `placeholder:"FILE" help:"SQL to run once before the script of --file, for its tables."`
	Define    map[string]string `short:"D" mapsep:"none" placeholder:"NAME=VALUE" help:"Define a variable of a script of pgbench, or an option of one of sysbench; may be given several times."`
	JSON      bool              `name:"json" help:"Print one JSON array, an element for each round of a scenario."`
	SVG       string            `name:"svg" placeholder:"FILE" help:"Also draw the medians as bars into this file."`
}

// Seconds is a duration that can be given as a bare number of seconds, as to pgbench.
type Seconds time.Duration

// UnmarshalText reads "5", "0.5" or "1m30s".
func (s *Seconds) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		if d, err = time.ParseDuration(string(text) + "s"); err != nil {
			return fmt.Errorf("%q is neither a number of seconds nor a duration such as 1m30s", text)
		}
	}
	*s = Seconds(d)
	return nil
}

const (
	maxClients = 100_000
	maxRounds  = 10_000
	maxJobs    = 10_000_000
	maxTime    = Seconds(24 * time.Hour)
)

// Check refuses what makes no sense, before any server is started.
func (f *Flags) Check(all []Scenario) error {
	switch {
	case f.List:
		return nil
	case f.Clients < 1 || f.Clients > maxClients:
		return fmt.Errorf("--clients: %d is not within 1 to %d", f.Clients, maxClients)
	case f.Threads < 0 || f.Threads > 1024:
		return fmt.Errorf("--threads: %d is not within 1 to 1024", f.Threads)
	case f.Conns < 0 || f.Conns > maxClients:
		return fmt.Errorf("--conns: %d is not within 1 to %d", f.Conns, maxClients)
	case f.Time <= 0 || f.Time > maxTime:
		return fmt.Errorf("--time: %v is not more than 0 and at most %v", time.Duration(f.Time), time.Duration(maxTime))
	case f.Warmup < 0 || f.Warmup > maxTime:
		return fmt.Errorf("--warmup: %v is not within 0 to %v", time.Duration(f.Warmup), time.Duration(maxTime))
	case f.Rounds < 1 || f.Rounds > maxRounds:
		return fmt.Errorf("--rounds: %d is not within 1 to %d", f.Rounds, maxRounds)
	case f.Jobs < 0 || f.Jobs > maxJobs:
		return fmt.Errorf("--jobs: %d is not within 1 to %d", f.Jobs, maxJobs)
	case f.Progress < 0:
		return fmt.Errorf("--progress: %v is negative", time.Duration(f.Progress))
	case f.Rate < 0 || f.Rate > 1e9 || math.IsNaN(f.Rate):
		return fmt.Errorf("--rate: %v is not within 0 to 1,000,000,000 a second", f.Rate)
	}
	for _, name := range f.Engine {
		if !slices.Contains([]devdb.Kind{devdb.Postgres, devdb.MariaDB, devdb.MySQL}, devdb.Kind(name)) {
			return fmt.Errorf("--engine: there is no %q; there are postgres, mariadb and mysql", name)
		}
	}
	if err := f.checkFiles(); err != nil {
		return err
	}
	_, err := f.choose(all)
	return err
}

// checkFiles refuses files that cannot be read.
func (f *Flags) checkFiles() error {
	if f.File == "" && (f.Setup != "" || len(f.Define) > 0) {
		return errors.New("--setup and --define go with --file")
	}
	for flag, file := range map[string]string{"--file": f.File, "--setup": f.Setup} {
		if file == "" {
			continue
		}
		if _, err := os.ReadFile(file); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}

// choose returns the scenarios that were named, in that order.
func (f *Flags) choose(all []Scenario) ([]Scenario, error) {
	names := f.Scenarios
	if f.File != "" {
		of := scripts(scriptFlags{f.File, f.Setup, f.Define})
		all = slices.Concat(all, of)
		if len(names) == 0 {
			for _, s := range of {
				names = append(names, s.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil, errors.New("which scenario? --list names all, and --file FILE runs a script")
	}
	var chosen []Scenario
	for _, name := range names {
		found, err := find(all, name)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if slices.ContainsFunc(chosen, func(c Scenario) bool { return c.Name == s.Name }) {
				if s.Name == name {
					return nil, fmt.Errorf("scenario %q is named twice", s.Name)
				}
				continue // a pattern takes what is not there yet
			}
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}

func (f *Flags) kinds() []devdb.Kind {
	var kinds []devdb.Kind
	for _, name := range f.Engine {
		if !slices.Contains(kinds, devdb.Kind(name)) {
			kinds = append(kinds, devdb.Kind(name))
		}
	}
	return kinds
}

func joined[T ~string](names []T) string {
	var text []string
	for _, n := range names {
		text = append(text, string(n))
	}
	return strings.Join(text, ", ")
}
