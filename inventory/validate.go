package inventory

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

func (r Request) validate() error {
	if err := text("Request.Key", r.Key, 1); err != nil {
		return err
	}
	if err := text("Request.SKU", r.SKU, 1); err != nil {
		return err
	}
	if err := text("Request.Buyer", r.Buyer, 0); err != nil {
		return err
	}
	if r.Qty < 1 || r.Qty > MaxQty {
		return &InvalidError{"Request.Qty", fmt.Sprintf("%d is not within 1 to %d", r.Qty, int64(MaxQty))}
	}
	return nil
}

func (a Adjustment) validate() error {
	if err := text("Adjustment.ID", a.ID, 1); err != nil {
		return err
	}
	if err := text("Adjustment.SKU", a.SKU, 1); err != nil {
		return err
	}
	if a.Delta < -MaxQty || a.Delta > MaxQty {
		return &InvalidError{"Adjustment.Delta", fmt.Sprintf("%d is not within ±%d", a.Delta, int64(MaxQty))}
	}
	return nil
}

// text refuses what one of the engines could not store as it is: Postgres takes neither NUL nor
// bytes that are not UTF-8, and so neither engine does.
func text(field, s string, least int) error {
	switch {
	case len(s) < least:
		return &InvalidError{field, "it is empty"}
	case len(s) > MaxKeyBytes:
		return &InvalidError{field, fmt.Sprintf("it has %d bytes, more than %d", len(s), MaxKeyBytes)}
	case !utf8.ValidString(s):
		return &InvalidError{field, fmt.Sprintf("%q is not valid UTF-8", s)}
	case strings.ContainsRune(s, 0):
		return &InvalidError{field, fmt.Sprintf("%q contains NUL", s)}
	}
	return nil
}
