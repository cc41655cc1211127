// Package orders reads a file of real order lines and replays it against a Store: the main job of
// package inventory, on real input.
package orders

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dblock-go/dblock/inventory"
)

// Line is one order line: a sale, or, with a negative quantity, a return.
type Line struct {
	Number int    // where it stands in the file, the heading being line 1
	Key    string // the invoice and the line's number within it
	SKU    string
	Buyer  string
	Qty    int64
}

// BadLine is a line that can't be an order.
type BadLine struct {
	Number int    `json:"line"`
	Reason string `json:"reason"`
}

// File is what a file holds.
type File struct {
	Lines []Line
	Bad   []BadLine
}

// columns that are read, named as in the UCI data set "Online Retail". Others may stand beside
// them.
var columns = []string{"InvoiceNo", "StockCode", "Quantity", "CustomerID"}

// Read reads a CSV file with a heading. A line that makes no sense is kept as a BadLine and does
// not stop the rest; a file whose heading lacks a column is an error.
func Read(r io.Reader) (File, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = -1
	in.ReuseRecord = true
	at, width, err := heading(in)
	if err != nil {
		return File{}, err
	}
	var f File
	invoices := make(map[string]int)
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		var syntax *csv.ParseError
		if errors.As(err, &syntax) {
			f.Bad = append(f.Bad, BadLine{syntax.StartLine, syntax.Err.Error()})
			continue
		}
		if err != nil {
			return File{}, fmt.Errorf("orders: %w", err)
		}
		number, _ := in.FieldPos(0)
		line, err := parse(record, at, width, invoices)
		if err != nil {
			f.Bad = append(f.Bad, BadLine{number, err.Error()})
			continue
		}
		line.Number = number
		f.Lines = append(f.Lines, line)
	}
}

// heading finds where the columns stand.
func heading(in *csv.Reader) (at map[string]int, width int, err error) {
	record, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, 0, errors.New("orders: the file is empty: a heading with " + strings.Join(columns, ", ") + " is needed")
	}
	if err != nil {
		return nil, 0, fmt.Errorf("orders: heading: %w", err)
	}
	at = make(map[string]int)
	for i, name := range record {
		at[strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))] = i
	}
	for _, name := range columns {
		if _, ok := at[name]; !ok {
			return nil, 0, fmt.Errorf("orders: the heading has no column %q; it has %s", name, strings.Join(record, ", "))
		}
	}
	return at, len(record), nil
}

func parse(record []string, at map[string]int, width int, invoices map[string]int) (Line, error) {
	if len(record) != width {
		return Line{}, fmt.Errorf("it has %d fields, the heading %d", len(record), width)
	}
	field := func(name string) string { return strings.TrimSpace(record[at[name]]) }
	invoice, sku, buyer, quantity := field("InvoiceNo"), field("StockCode"), field("CustomerID"), field("Quantity")
	if invoice == "" {
		return Line{}, errors.New("InvoiceNo is empty")
	}
	invoices[invoice]++ // a bad line counts too: the keys of those after it must not depend on it
	key := fmt.Sprintf("%s/%d", invoice, invoices[invoice])
	qty, err := strconv.ParseInt(quantity, 10, 64)
	switch {
	case err != nil:
		return Line{}, fmt.Errorf("the quantity %q is not a whole number", quantity)
	case qty == 0:
		return Line{}, errors.New("the quantity is 0")
	case qty > inventory.MaxQty || qty < -inventory.MaxQty:
		return Line{}, fmt.Errorf("the quantity %d is beyond ±%d", qty, int64(inventory.MaxQty))
	case sku == "":
		return Line{}, errors.New("StockCode is empty")
	}
	for name, s := range map[string]string{"InvoiceNo": key, "StockCode": sku, "CustomerID": buyer} {
		if len(s) > inventory.MaxIdentifierBytes || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return Line{}, fmt.Errorf("%s is over %d bytes, not UTF-8, or contains NUL", name, inventory.MaxIdentifierBytes)
		}
	}
	return Line{Key: key, SKU: sku, Buyer: buyer, Qty: qty}, nil
}
