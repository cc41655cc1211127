package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/orders"
	"github.com/dblock-go/dblock/internal/sale"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
)

// demo runs `dblock demo --json` on every engine under test.
func demo[T any](t *testing.T, args ...string) []T {
	t.Helper()
	args = append([]string{"demo", "--json"}, args...)
	for _, kind := range testdb.Engines() {
		args = append(args, "--engine", string(kind))
	}
	r := invoke(t, "", args...)
	var got []T
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 0 {
		t.Fatalf("exit %d, %v, stderr %q, stdout %q", r.code, err, r.err, r.out)
	}
	return got
}

func TestDemoSells(t *testing.T) {
	t.Parallel()
	got := demo[saleResult](t, "--buyers", "60", "--stock", "25", "--rounds", "2", "--seed", "7")
	want := 0
	for _, kind := range testdb.Engines() {
		want += 2 + len(bench.PlainSales(kind))
	}
	if len(got) != want {
		t.Fatalf("%d results, want %d", len(got), want)
	}
	for _, r := range got {
		if r.SellsAll && (r.Sold != 50 || r.SoldOut != 70 || r.Busy+r.LostSales != 0) ||
			r.Sold < 1 || r.Sold+r.SoldOut+r.Busy != 120 || r.LostSales != min(50-r.Sold, 120-r.Sold) ||
			r.Failed+r.Oversold+r.Unrecorded != 0 || !r.BooksBalance ||
			r.SoldPerS <= 0 || r.P50MS <= 0 || r.P99MS < r.P50MS || r.AloneP50MS <= 0 || r.RatioDirect <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestDemoPrintsATable(t *testing.T) {
	t.Parallel()
	kind := string(testdb.Engines()[0])
	r := invoke(t, "", "demo", "--engine", kind, "--buyers", "10", "--stock", "20", "--rounds", "1")
	words := []string{"strategy", "told busy", "lost sales", "oversold", "sold/s", "The books balance", "merge", "direct"}
	for _, s := range bench.PlainSales(devdb.Kind(kind)) {
		words = append(words, s.Name)
	}
	for _, word := range words {
		if r.code != 0 || !strings.Contains(r.out, word) {
			t.Errorf("exit %d, no %q in %q; stderr %q", r.code, word, r.out, r.err)
		}
	}
	if !strings.Contains(r.err, kind) || !strings.Contains(r.err, "durable") {
		t.Errorf("stderr does not say which server was taken: %q", r.err)
	}
}

// TestDemoFailsWhenTheBooksAreOff is the control: a result that is wrong ends with an error.
func TestDemoFailsWhenTheBooksAreOff(t *testing.T) {
	t.Parallel()
	good := sale.Result{Sold: 5, Balance: inventory.Balance{Restocked: 5, Sold: 5}}
	l := &saleLine{results: []sale.Result{good}}
	if err := checkLines([]*saleLine{l}); err != nil {
		t.Error(err)
	}
	bad := good
	bad.Balance.Sold = 4
	bad.Unrecorded = 1
	l.results = append(l.results, bad)
	if err := checkLines([]*saleLine{l}); err == nil || !strings.Contains(err.Error(), "round 2") {
		t.Errorf("got %v", err)
	}
}

// TestDemoHoldsStrategiesToTheirPromise: a refusal as busy is a fault of a strategy that promises
// to sell all, and is to be expected of the others.
func TestDemoHoldsStrategiesToTheirPromise(t *testing.T) {
	t.Parallel()
	lost := sale.Result{Sold: 4, Busy: 1, LostSales: 1, Balance: inventory.Balance{Restocked: 5, Sold: 4, Available: 1}}
	all, err := (&demoCmd{}).strategies(devdb.Postgres)
	if err != nil || len(all) != 7 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, s := range all {
		err := checkLines([]*saleLine{{strategy: s, results: []sale.Result{lost}}})
		if promised := slices.Contains([]string{"merge", "direct", "forupdate"}, s.name); promised != (err != nil) {
			t.Errorf("%v: %v", s.name, err)
		}
	}
}

func TestDemoHelpListsTheStrategies(t *testing.T) {
	t.Parallel()
	r := invoke(t, "", "demo", "--help")
	for _, s := range bench.PlainSales(devdb.Postgres) {
		if r.code != 0 || !strings.Contains(r.out, s.Name) {
			t.Errorf("exit %d, no %v in %q", r.code, s.Name, r.out)
		}
	}
}

// TestDemoWhereAStrategyIsMissing: one that was not asked for is left out; one that
// was is refused.
func TestDemoWhereAStrategyIsMissing(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue // it has all
		}
		all := invoke(t, "", "demo", "--engine", string(kind), "--buyers", "5", "--stock", "5", "--rounds", "1")
		if all.code != 0 || strings.Contains(all.out, "advisory") {
			t.Errorf("exit %d, stdout %q, stderr %q", all.code, all.out, all.err)
		}
		named := invoke(t, "", "demo", "--engine", string(kind), "--strategy", "advisory")
		if named.code != exitFailed || named.out != "" || !strings.Contains(named.err, "has no \"advisory\"") {
			t.Errorf("exit %d, stdout %q, stderr %q", named.code, named.out, named.err)
		}
	}
}

func TestDemoReplaysOrders(t *testing.T) {
	t.Parallel()
	const file = "../../internal/orders/testdata/online_retail_2010-12-01.csv"
	results := demo[replayResult](t, "--orders", file)
	results = append(results, demo[replayResult](t, "--orders", file, "--strategy", "direct")...)
	for _, r := range results {
		first, second := r.Passes[0], r.Passes[1]
		if r.Lines != 999 || len(r.Bad) != 0 || first.Accepted+first.SoldOut+first.Returned != 999 || first.Seen != 0 {
			t.Errorf("%+v", r)
		}
		if want := (orders.Report{Seen: 999}); second != want {
			t.Errorf("the second time: %+v", second)
		}
		if a := r.Audit; a.SKUs == 0 || a.Drifting != 0 || a.Restocked != a.Sold+a.Available {
			t.Errorf("%+v", a)
		}
	}
}

func TestDemoSaysWhichLinesAreBad(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orders.csv")
	text := "InvoiceNo,StockCode,Quantity,CustomerID\n1,A,4,ann\n1,A,lots,ann\n2,B,-1,\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := invoke(t, "", "demo", "--orders", file, "--engine", string(testdb.Engines()[0]))
	for _, want := range []string{`line 3: the quantity "lots" is not a whole number`, "audit: 2 SKUs, 3 units restocked = 0 sold + 3 left"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("exit %d, no %q in %q; stderr %q", r.code, want, r.out, r.err)
		}
	}
}

// Lines at the bounds of what Reserve and Restock take are orders like others.
func TestDemoReplaysExtremeOrders(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orders.csv")
	text := "InvoiceNo,StockCode,Quantity,CustomerID\n" + strings.Repeat("1,A,1099511627776,ann\n", 3) +
		"2," + strings.Repeat("s", 255) + ",4,ann\n" + "stock,1,-1,ann\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := invoke(t, "", "demo", "--orders", file, "--engine", string(testdb.Engines()[0]))
	if r.code != 0 || !strings.Contains(r.out, "audit: 3 SKUs, 1649267441667 units restocked = 1099511627776 sold + 549755813891 left") {
		t.Errorf("exit %d, stdout %q, stderr %q", r.code, r.out, r.err)
	}
}

func TestDemoRefusesNonsense(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--buyers 0", exitUsage, "--buyers: 0 is not within"},
		{"--rounds 2000000", exitUsage, "--rounds"},
		{"--stock=-1", exitUsage, "--stock: -1"},
		{"--engine oracle", exitUsage, `there is no "oracle"`},
		{"--strategy magic", exitUsage, `"magic"`},
		{"--orders nowhere.csv", exitUsage, "nowhere.csv"},
		{"--", exitUsage, "no command behind --"},
		{"--json -- true", exitUsage, "a command goes with none"},
		{"--orders main.go --strategy nowait", exitUsage, "merge or direct"},
		{"--orders main.go", exitFailed, "InvoiceNo"},
	} {
		invoke(t, "", append([]string{"demo"}, strings.Fields(c.args)...)...).wantFailure(t, c.code, c.says)
	}
}

func TestDemoWorks(t *testing.T) {
	t.Parallel()
	got := demo[jobsResult](t, "--jobs", "200")
	if len(got) != len(testdb.Engines()) {
		t.Fatalf("%d results", len(got))
	}
	for _, r := range got {
		if r.Done != 198 || r.Dead != 2 || r.Failures != 18 || r.EachS <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

// TestDemoRunsTheWorker runs the worker of examples/ beside a server of each kind, as the docs say.
func TestDemoRunsTheWorker(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r := invoke(t, "", "demo", "--engine", string(kind), "--", "go", "run", "-trimpath", "../../examples/worker") // as make test compiles
			if said := strings.Count(r.err, ": a mail to customer"); r.code != 0 || said != 5 || !strings.Contains(r.err, "order 3: a mail to customer3@example.com (attempt 2)") {
				t.Errorf("exit %d, %d mails: %s", r.code, said, r.err)
			}
		})
	}
	if r := invoke(t, "", "demo", "--engine", string(testdb.Engines()[0]), "--", "sh", "-c", "exit 7"); r.code != 7 {
		t.Errorf("exit %d, want the command's 7: %s", r.code, r.err)
	}
	if r := invoke(t, "", "demo", "--engine", string(testdb.Engines()[0]), "--", "/nowhere"); r.code != exitFailed || !strings.Contains(r.err, "/nowhere") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}
