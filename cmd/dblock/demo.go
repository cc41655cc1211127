package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/sale"
	"github.com/dblock-go/dblock/inventory"
)

// demoCmd is `dblock demo`.
type demoCmd struct {
	Buyers   int      `default:"2000" help:"Buyers of one sale. Each tries once to buy one unit."`
	Stock    int64    `default:"800" help:"Units of one sale."`
	Rounds   int      `default:"3" help:"Sales of each strategy, in turn."`
	Strategy []string `help:"Strategies: merge, direct, and in plain SQL forupdate, nowait, skiplocked, cas, advisory (Postgres only). Default: all that the server has."`
	Engine   []string `help:"Servers: postgres, mariadb, mysql. Default: each that is found."`
	Seed     uint64   `default:"1" help:"Decides the order of the buyers."`
	Orders   string   `type:"existingfile" placeholder:"FILE.csv" help:"Replay the order lines of this file instead (columns InvoiceNo, StockCode, Quantity, CustomerID), with half the stock that they order."`
	Jobs     int      `placeholder:"N" help:"Run a job queue instead: N jobs, on two workers."`
	Passes   int      `default:"2" help:"How often the file is sent. From the second time on, all of it was seen already."`
	Workers  int      `default:"64" help:"Order lines that are sent at once."`
	JSON     bool     `name:"json" help:"Print one JSON array instead of tables."`
	Command  []string `arg:"" optional:"" passthrough:"" help:"Run this instead, behind --, beside a throwaway server with dblock's tables."`
}

// Help is what `dblock demo --help` says beside the flags.
func (demoCmd) Help() string {
	return `Runs a flash sale on a throwaway server of each kind that is found, with durable settings, and prints
for each strategy what was sold, which sales were lost, how fast, and whether the books balance. The
strategies merge and direct are dblock's. The others are written by hand, to compare them.

Servers come from DBLOCK_POSTGRES_URL and DBLOCK_MYSQL_DSN (a database of its own is made there, and
dropped), or else from the binaries on this machine (DBLOCK_POSTGRES_BIN, DBLOCK_MYSQLD).

With a command, as in "dblock demo -- go run ./examples/worker", that is run beside each server, and
finds the address of a database with dblock's tables in DBLOCK_POSTGRES_URL or DBLOCK_MYSQL_DSN.

Exit status 1: a unit was oversold, a confirmed sale is not in the books, the books are off, a buyer was
refused as sold out while a unit was left, or a strategy that promises to sell all (merge, direct, forupdate)
refused a buyer as busy. The others are expected to lose sales.`
}

// Validate refuses what makes no sense, before any server is started. Kong calls it.
func (c *demoCmd) Validate() error {
	for _, f := range []struct {
		flag string
		n    int
	}{{"--buyers", c.Buyers}, {"--rounds", c.Rounds}, {"--passes", c.Passes}, {"--workers", c.Workers}} {
		if f.n < 1 || f.n > 1_000_000 {
			return fmt.Errorf("%s: %d is not within 1 to 1,000,000", f.flag, f.n)
		}
	}
	if c.Jobs < 0 || c.Jobs > 1_000_000 {
		return fmt.Errorf("--jobs: %d is not within 1 to 1,000,000", c.Jobs)
	}
	if c.Jobs > 0 && c.Orders != "" {
		return errors.New("--jobs and --orders: choose one")
	}
	if len(c.Command) == 1 && c.Command[0] == "--" {
		return errors.New("there is no command behind --")
	}
	if len(c.Command) > 0 && (c.Jobs > 0 || c.Orders != "" || c.JSON) {
		return errors.New("a command goes with none of --jobs, --orders and --json")
	}
	if c.Stock < 0 || c.Stock > inventory.MaxQty {
		return fmt.Errorf("--stock: %d is not within 0 to %d", c.Stock, int64(inventory.MaxQty))
	}
	for _, name := range c.Engine {
		if !slices.Contains([]devdb.Kind{devdb.Postgres, devdb.MariaDB, devdb.MySQL}, devdb.Kind(name)) {
			return fmt.Errorf("--engine: there is no %q; there are postgres, mariadb and mysql", name)
		}
	}
	strategies, err := c.strategies(devdb.Postgres)
	if err != nil || c.Orders == "" || len(c.Strategy) == 0 {
		return err
	}
	if len(strategies) > 1 { // the second one would find all of its orders seen
		return errors.New("--orders: give one --strategy, not several")
	}
	if strategies[0].plain != nil {
		return errors.New("--orders: the --strategy is merge or direct")
	}
	return nil
}

// strategy is a way to sell: a Store with options, or plain SQL.
type strategy struct {
	name     string
	sellsAll bool // it refuses no buyer as busy
	options  inventory.Options
	plain    *bench.PlainSale
}

// strategies are those that a kind of server has, or those that were chosen. It puts direct first,
// which the others are held against, and merge last.
func (c *demoCmd) strategies(kind devdb.Kind) ([]strategy, error) {
	all := []strategy{{name: "direct", sellsAll: true, options: inventory.Options{Direct: true}}}
	for _, p := range bench.PlainSales(kind) {
		all = append(all, strategy{name: p.Name, sellsAll: p.SellsAll, plain: &p})
	}
	all = append(all, strategy{name: "merge", sellsAll: true})
	if len(c.Strategy) == 0 {
		return all, nil
	}
	var chosen []strategy
	for _, name := range c.Strategy {
		i := slices.IndexFunc(all, func(s strategy) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--strategy: %s has no %q", kind, name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func (c *demoCmd) kinds(ctx context.Context) ([]devdb.Kind, error) {
	if len(c.Engine) == 0 {
		if found := devdb.Available(ctx); len(found) > 0 {
			return found, nil
		}
		return nil, &devdb.NotFoundError{Kind: devdb.Postgres}
	}
	var kinds []devdb.Kind
	for _, name := range c.Engine {
		kinds = append(kinds, devdb.Kind(name))
	}
	return kinds, nil
}

// Run runs the demo on every engine. What is wrong with one does not keep the others from running.
func (c *demoCmd) Run(ctx context.Context, std streams) error {
	kinds, err := c.kinds(ctx)
	if err != nil {
		return err
	}
	one := c.sales
	switch {
	case len(c.Command) > 0:
		one = c.command
	case c.Jobs > 0:
		one = c.jobs
	}
	if c.Orders != "" {
		if one, err = c.replays(); err != nil {
			return err
		}
	}
	var wrong []error
	results := []any{}
	for _, kind := range kinds {
		s, err := openShop(ctx, kind, std.err)
		if err != nil {
			return errors.Join(append(wrong, err)...)
		}
		result, err := one(ctx, s, std)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", kind, err))
		}
		results = append(results, result...)
		if err := s.close(); err != nil {
			wrong = append(wrong, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if c.JSON {
		out := json.NewEncoder(std.out)
		out.SetIndent("", "  ")
		wrong = append(wrong, out.Encode(results))
	}
	return errors.Join(wrong...)
}

// sales runs the rounds of all strategies in turn, so that whatever slows the machine down for a
// while slows all of them.
func (c *demoCmd) sales(ctx context.Context, s *shop, std streams) ([]any, error) {
	strategies, err := c.strategies(s.server.Kind)
	if err != nil {
		return nil, err
	}
	var lines []*saleLine
	for _, strategy := range strategies {
		store, err := s.sells(ctx, strategy)
		if err != nil {
			return nil, err
		}
		lines = append(lines, &saleLine{store: store, strategy: strategy, latency: sale.Histogram()})
	}
	bar := newBar(std.err, string(s.server.Kind), (c.Rounds+1)*len(lines)*c.Buyers)
	for round := range c.Rounds + 1 { // the first one warms up connections and is not counted
		for _, l := range lines {
			this := sale.Sale{
				Name:   fmt.Sprintf("sale-%d-%s-%d", c.Seed, l.strategy.name, round),
				Buyers: c.Buyers, Stock: c.Stock, Seed: c.Seed + uint64(round),
			}
			result, err := this.Run(ctx, l.store, bar.tick)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				l.add(result)
			}
		}
	}
	bar.done()
	if err := aloneInTurn(ctx, lines); err != nil {
		return nil, err
	}
	results := saleResults(c, s, lines)
	if !c.JSON {
		c.printSales(std.out, s, results)
	}
	all := make([]any, len(results))
	for i, r := range results {
		all[i] = r
	}
	return all, checkLines(lines)
}
