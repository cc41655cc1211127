package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/dblock-go/dblock/internal/sale"
	"github.com/dblock-go/dblock/inventory"
)

// saleLine is one strategy's line of the demo's table.
type saleLine struct {
	store    sale.Store
	strategy strategy
	results  []sale.Result
	latency  *hdrhistogram.Histogram // of all rounds
	alone    time.Duration           // median of a single buyer's orders
}

func (l *saleLine) add(r sale.Result) {
	l.results = append(l.results, r)
	l.latency.Merge(r.Latency)
}

// rates are the rounds' units sold a second, from the start of a sale to the last answer that said
// sold.
func (l *saleLine) rates() []float64 {
	rates := make([]float64, len(l.results))
	for i, r := range l.results {
		if r.Took > 0 {
			rates[i] = float64(r.Sold) / r.Took.Seconds()
		}
	}
	return rates
}

// ratio is the median of the rounds' ratios to another line's same round; 0 if there is none.
func (l *saleLine) ratio(to *saleLine) float64 {
	mine, theirs := l.rates(), to.rates()
	var ratios []float64
	for i := range mine {
		if theirs[i] > 0 {
			ratios = append(ratios, mine[i]/theirs[i])
		}
	}
	return median(ratios)
}

func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// direct returns the line that the others are held against, or nil.
func direct(lines []*saleLine) *saleLine {
	for _, l := range lines {
		if l.strategy.name == "direct" {
			return l
		}
	}
	return nil
}

func checkLines(lines []*saleLine) error {
	var wrong []error
	for _, l := range lines {
		for round, r := range l.results {
			if err := r.Check(l.strategy.sellsAll); err != nil {
				wrong = append(wrong, fmt.Errorf("%s, round %d: %w", l.strategy.name, round+1, err))
			}
		}
	}
	return errors.Join(wrong...)
}

// aloneInTurn has a single buyer order one unit after another, of each strategy in turn: what
// merging costs a caller without others to share with.
func aloneInTurn(ctx context.Context, lines []*saleLine) error {
	const orders = 200
	took := make([]*hdrhistogram.Histogram, len(lines))
	for i, l := range lines {
		took[i] = sale.Histogram()
		sku := "alone-" + l.strategy.name
		if _, err := l.store.Restock(ctx, inventory.Adjustment{ID: sku, SKU: sku, Delta: orders}); err != nil {
			return err
		}
	}
	for n := range orders {
		for i, l := range lines {
			sku := "alone-" + l.strategy.name
			start := time.Now()
			_, err := l.store.Reserve(ctx, inventory.Request{Key: fmt.Sprintf("%s-%d", sku, n), SKU: sku, Qty: 1})
			if err != nil {
				return err
			}
			_ = took[i].RecordValue(max(1, time.Since(start).Microseconds()))
		}
	}
	for i, l := range lines {
		l.alone = microseconds(took[i].ValueAtQuantile(50))
	}
	return nil
}

func microseconds(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// printSales prints a line for each strategy. Each sale is of c.Stock units.
func (c *demoCmd) printSales(out io.Writer, s *shop, results []saleResult) {
	_, _ = fmt.Fprintf(out, "\n%s %s, every commit durable: %d sales a strategy, %d units for %d buyers each, seed %d\n\n",
		s.server.Kind, s.server.Version, c.Rounds, c.Stock, c.Buyers, c.Seed)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "strategy\tunits sold\tof\ttold busy\tlost sales\toversold\tunrecorded\tsold/s\tp50\tp99\tp50 alone\t× direct\t")
	balance := true
	for _, r := range results {
		ratio := "-"
		if r.RatioDirect > 0 {
			ratio = twoDigits(r.RatioDirect)
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t%v\t%v\t%v\t%s\t\n", r.Strategy, r.Sold, c.Stock*int64(r.Rounds),
			r.Busy, r.LostSales, r.Oversold, r.Unrecorded, r.SoldPerS, rounded(r.P50MS), rounded(r.P99MS), rounded(r.AloneP50MS), ratio)
		balance = balance && r.BooksBalance
	}
	_ = t.Flush()
	if balance {
		_, _ = fmt.Fprintln(out, "\nThe books balance: units restocked = units sold + units left, for every sale.")
	}
}

func twoDigits(x float64) string {
	if x < 1 {
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

// rounded keeps three digits of milliseconds.
func rounded(ms float64) time.Duration {
	d, unit := time.Duration(ms*float64(time.Millisecond)), time.Microsecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}

// saleResult is a saleLine as JSON.
type saleResult struct {
	Engine       string  `json:"engine"`
	Server       string  `json:"server"`
	Strategy     string  `json:"strategy"`
	Buyers       int     `json:"buyers"`
	Stock        int64   `json:"stock"`
	Rounds       int     `json:"rounds"`
	Seed         uint64  `json:"seed"`
	Sold         int64   `json:"sold"`
	SoldOut      int64   `json:"sold_out"`
	Busy         int64   `json:"busy"`
	Failed       int64   `json:"failed"`
	LostSales    int64   `json:"lost_sales"`
	SellsAll     bool    `json:"promises_to_sell_all"`
	Oversold     int64   `json:"oversold"`
	Unrecorded   int64   `json:"unrecorded"`
	SoldPerS     float64 `json:"sold_per_s"`
	P50MS        float64 `json:"p50_ms"`
	P99MS        float64 `json:"p99_ms"`
	AloneP50MS   float64 `json:"alone_p50_ms"`
	RatioDirect  float64 `json:"ratio_to_direct,omitempty"`
	BooksBalance bool    `json:"books_balance"`
}

func saleResults(c *demoCmd, s *shop, lines []*saleLine) []saleResult {
	results := make([]saleResult, len(lines))
	base := direct(lines)
	for i, l := range lines {
		r := saleResult{
			Engine: string(s.server.Kind), Server: s.server.Version, Strategy: l.strategy.name,
			Buyers: c.Buyers, Stock: c.Stock, Rounds: len(l.results), Seed: c.Seed,
			SellsAll: l.strategy.sellsAll, SoldPerS: median(l.rates()),
			P50MS: float64(l.latency.ValueAtQuantile(50)) / 1000, P99MS: float64(l.latency.ValueAtQuantile(99)) / 1000,
			AloneP50MS:   float64(l.alone.Microseconds()) / 1000,
			BooksBalance: checkLines([]*saleLine{l}) == nil,
		}
		for _, round := range l.results {
			r.Sold += round.Balance.Sold
			r.SoldOut += round.SoldOut
			r.Busy += round.Busy
			r.Failed += round.Failed
			r.LostSales += round.LostSales
			r.Oversold += round.Oversold
			r.Unrecorded += round.Unrecorded
		}
		if base != nil {
			r.RatioDirect = l.ratio(base)
		}
		results[i] = r
	}
	return results
}
