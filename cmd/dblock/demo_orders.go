package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/dblock-go/dblock/internal/orders"
	"github.com/dblock-go/dblock/inventory"
)

// mostBadLines is how many bad lines are printed one by one.
const mostBadLines = 20

// replayResult is what became of one file on one engine.
type replayResult struct {
	Engine   string           `json:"engine"`
	Server   string           `json:"server"`
	Strategy string           `json:"strategy"`
	File     string           `json:"file"`
	Lines    int              `json:"lines"`
	Bad      []orders.BadLine `json:"bad"`
	Passes   []orders.Report  `json:"passes"`
	Audit    replayAudit      `json:"audit"`
}

// replayAudit is the sum of all SKUs' books.
type replayAudit struct {
	SKUs      int   `json:"skus"`
	Restocked int64 `json:"restocked"`
	Sold      int64 `json:"sold"`
	Available int64 `json:"available"`
	Drifting  int   `json:"skus_with_drift"`
}

// replays reads the file and returns what replays it on one engine.
func (c *demoCmd) replays() (func(context.Context, *shop, streams) ([]any, error), error) {
	in, err := os.Open(c.Orders)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	file, err := orders.Read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Orders, err)
	}
	if len(file.Lines) == 0 {
		return nil, fmt.Errorf("%s: no line of it is an order; %d are bad", c.Orders, len(file.Bad))
	}
	direct := slices.Equal(c.Strategy, []string{"direct"})
	return func(ctx context.Context, s *shop, std streams) ([]any, error) {
		result, err := c.replay(ctx, s, file, direct, std.err)
		if !c.JSON {
			result.print(std.out)
		}
		return []any{result}, err
	}, nil
}

// replay stocks half of what the file orders and sends it as often as was asked. Refusals are
// recorded, so that a line's answer never changes, whatever is returned meanwhile.
func (c *demoCmd) replay(
	ctx context.Context, s *shop, file orders.File, direct bool, progress io.Writer,
) (result replayResult, err error) {
	result = replayResult{
		Engine: string(s.server.Kind), Server: s.server.Version, Strategy: map[bool]string{false: "merge", true: "direct"}[direct],
		File: c.Orders, Lines: len(file.Lines) + len(file.Bad), Bad: file.Bad,
	}
	store, err := s.store(ctx, inventory.Options{Direct: direct, RecordRefusals: true})
	if err != nil {
		return result, err
	}
	for _, a := range orders.HalfStock(file.Lines) {
		if _, err := store.Restock(ctx, a); err != nil {
			return result, err
		}
	}
	bar := newBar(progress, string(s.server.Kind), c.Passes*len(file.Lines))
	for range c.Passes {
		report, err := orders.Replay(ctx, store, file.Lines, c.Workers, bar.tick)
		result.Passes = append(result.Passes, report)
		if err != nil {
			return result, err
		}
	}
	bar.done()
	books, err := store.Audit(ctx)
	if err != nil {
		return result, err
	}
	result.Audit = sumUp(books)
	if result.Audit.Drifting > 0 {
		return result, fmt.Errorf("the books of %d SKUs are off", result.Audit.Drifting)
	}
	return result, nil
}

func sumUp(books []inventory.Balance) (sum replayAudit) {
	sum.SKUs = len(books)
	for _, b := range books {
		sum.Restocked += b.Restocked
		sum.Sold += b.Sold
		sum.Available += b.Available
		if b.Drift() != 0 {
			sum.Drifting++
		}
	}
	return sum
}

func (r replayResult) print(out io.Writer) {
	_, _ = fmt.Fprintf(out, "\n%s %s, strategy %s: %s, %d lines; stock: half of what is ordered, rounded up\n\n",
		r.Engine, r.Server, r.Strategy, r.File, r.Lines)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "pass\taccepted\tsold out\treturned\talready seen\tbad lines\t")
	for i, p := range r.Passes {
		_, _ = fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t\n", i+1, p.Accepted, p.SoldOut, p.Returned, p.Seen, len(r.Bad))
	}
	_ = t.Flush()
	for i, bad := range r.Bad {
		if i == mostBadLines {
			_, _ = fmt.Fprintf(out, "... and %d more\n", len(r.Bad)-mostBadLines)
			break
		}
		_, _ = fmt.Fprintf(out, "line %d: %s\n", bad.Number, bad.Reason)
	}
	a := r.Audit
	_, _ = fmt.Fprintf(out, "\naudit: %d SKUs, %d units restocked = %d sold + %d left; SKUs whose books are off: %d\n",
		a.SKUs, a.Restocked, a.Sold, a.Available, a.Drifting)
}
