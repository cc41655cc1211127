package orders

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock/inventory"
)

func TestReadRealFile(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/online_retail_2010-12-01.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	file, err := Read(f)
	if err != nil || len(file.Bad) > 0 || len(file.Lines) != 999 {
		t.Fatalf("%d lines, %d bad, %v", len(file.Lines), len(file.Bad), err)
	}
	want := Line{Number: 2, Key: "536365/1", SKU: "85123A", Buyer: "17850", Qty: 6}
	if diff := cmp.Diff(want, file.Lines[0]); diff != "" {
		t.Error(diff)
	}
	keys := map[string]bool{}
	for _, l := range file.Lines {
		keys[l.Key] = true
	}
	if len(keys) != 999 {
		t.Errorf("%d keys for 999 lines", len(keys))
	}
}

func TestReadKeepsBadLinesApart(t *testing.T) {
	t.Parallel()
	const file = "\ufeffCountry,InvoiceNo,Quantity,StockCode,CustomerID\n" +
		"UK,1,2,A,ann\n" + // line 2
		"UK,1,many,A,ann\n" +
		"UK,1,0,A,ann\n" +
		"UK,1,2,,ann\n" +
		"UK,,2,A,ann\n" +
		"UK,1\n" +
		"UK,1,\"2,A,ann\n" + // an open quote takes the rest of the line, and of the next
		"UK\",x\n" +
		"UK,1,3,B\x00,ann\n" + // line 10
		"UK,1,3,\xff,ann\n" +
		"UK,1,99999999999999999999,A,ann\n" +
		"UK,1,-4,B,\n"
	got, err := Read(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	lines := []Line{
		{Number: 2, Key: "1/1", SKU: "A", Buyer: "ann", Qty: 2},
		{Number: 13, Key: "1/8", SKU: "B", Qty: -4},
	}
	if diff := cmp.Diff(lines, got.Lines); diff != "" {
		t.Error(diff)
	}
	numbers := map[int]string{}
	for _, b := range got.Bad {
		numbers[b.Number] = b.Reason
	}
	for number, reason := range map[int]string{
		3: "not a whole number", 4: "is 0", 5: "StockCode is empty", 6: "InvoiceNo is empty", 7: "fields",
		8: "fields", 10: "NUL", 11: "UTF-8", 12: "not a whole number",
	} {
		if !strings.Contains(numbers[number], reason) {
			t.Errorf("line %d: %q, want something with %q", number, numbers[number], reason)
		}
	}
	if len(got.Bad) != 9 {
		t.Errorf("bad lines: %v", got.Bad)
	}
}

func TestReadRefusesFilesOfSomethingElse(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"empty":      "",
		"no columns": "a,b,c\n1,2,3\n",
		"one short":  "InvoiceNo,StockCode,CustomerID\n1,2,3\n",
	} {
		if _, err := Read(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), "InvoiceNo") &&
			!strings.Contains(err.Error(), "Quantity") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHalfStock(t *testing.T) {
	t.Parallel()
	got := HalfStock([]Line{{SKU: "b", Qty: 5}, {SKU: "a", Qty: 2}, {SKU: "b", Qty: -9}, {SKU: "c", Qty: -1}})
	want := []inventory.Adjustment{{ID: stockID("a", 1), SKU: "a", Delta: 1}, {ID: stockID("b", 1), SKU: "b", Delta: 3}, {ID: stockID("c", 1), SKU: "c"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Of every file the adjustments are such that a Store takes them, under IDs that no line has.
func TestHalfStockOfAnyLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("s", inventory.MaxIdentifierBytes)
	most := strconv.FormatInt(inventory.MaxQty, 10)
	for name, c := range map[string]struct {
		lines string
		want  int64 // units
	}{
		"long SKUs":           {"1," + long + ",3,ann\n1," + long[1:] + ",3,ann\n", 4},
		"many units":          {strings.Repeat("1,A,"+most+",ann\n", 3), inventory.MaxQty / 2 * 3},
		"more units":          {strings.Repeat("1,A,"+most+",ann\n", 5) + "1,A,1,ann\n", inventory.MaxQty/2*5 + 1},
		"an invoice stock":    {"stock,1,-1,ann\nstock,1,2,ann\n", 1},
		"the ID of an SKU":    {stockID("A", 1) + ",A,1,ann\n", 1},
		"returns and nothing": {"1,A,-1,ann\n", 0},
	} {
		file, err := Read(strings.NewReader("InvoiceNo,StockCode,Quantity,CustomerID\n" + c.lines))
		if err != nil || len(file.Bad) > 0 {
			t.Fatalf("%s: %v, %v", name, file.Bad, err)
		}
		taken := make(map[string]bool)
		for _, l := range file.Lines {
			taken[l.Key] = true
		}
		units := int64(0)
		for _, a := range HalfStock(file.Lines) {
			if taken[a.ID] || len(a.ID) > inventory.MaxIdentifierBytes || a.Delta > inventory.MaxQty {
				t.Errorf("%s: %+v", name, a)
			}
			taken[a.ID] = true
			units += a.Delta
		}
		if units != c.want {
			t.Errorf("%s: %d units, want %d", name, units, c.want)
		}
	}
}
