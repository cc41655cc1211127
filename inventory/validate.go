package inventory

import (
	"strings"
	"time"
	"unicode/utf8"
)

func (r Request) validate() error {
	if err := checkCommon(r.Key, r.Buyer, r.Hold, "Request"); err != nil {
		return err
	}
	if err := (Line{r.SKU, r.Qty, r.Limit, r.Unstocked}).validate("Request"); err != nil {
		return err
	}
	if r.Limit > 0 && r.Buyer == "" {
		return invalid("Request.Buyer", "it is empty, and a limit needs a buyer")
	}
	return nil
}

// checkCommon checks what a Request and a Cart have in common.
func checkCommon(key, buyer string, hold time.Duration, of string) error {
	if err := text(of, ".Key", key, 1); err != nil {
		return err
	}
	if err := text(of, ".Buyer", buyer, 0); err != nil {
		return err
	}
	if hold == 0 {
		return nil
	}
	return holdTime(of+".Hold", hold)
}

// holdTime refuses what the database could not keep as it is.
func holdTime(field string, d time.Duration) error {
	switch {
	case d < time.Microsecond || d > MaxHold:
		return invalid(field, "%v is not within 1µs to %v", d, MaxHold)
	case d%time.Microsecond != 0:
		return invalid(field, "%v is not whole microseconds", d)
	}
	return nil
}

func (l Line) validate(of string) error {
	if err := text(of, ".SKU", l.SKU, 1); err != nil {
		return err
	}
	if l.Qty < 1 || l.Qty > MaxQty {
		return invalid(of+".Qty", "%d is not within 1 to %d", l.Qty, int64(MaxQty))
	}
	if l.Limit < 0 || l.Limit > MaxQty {
		return invalid(of+".Limit", "%d is not within 0 to %d", l.Limit, int64(MaxQty))
	}
	return nil
}

func (a Adjustment) validate() error {
	if err := text("Adjustment", ".ID", a.ID, 1); err != nil {
		return err
	}
	if err := text("Adjustment", ".SKU", a.SKU, 1); err != nil {
		return err
	}
	if a.Delta < -MaxQty || a.Delta > MaxQty {
		return invalid("Adjustment.Delta", "%d is not within ±%d", a.Delta, int64(MaxQty))
	}
	return nil
}

// text refuses what one of the databases could not store as it is: Postgres takes neither NUL nor
// bytes that are not UTF-8, and so neither driver does. The name of the field comes in two, to be
// put together only for an error.
func text(of, field, s string, least int) error {
	switch {
	case len(s) < least:
		return invalid(of+field, "it is empty")
	case len(s) > MaxIdentifierBytes:
		return invalid(of+field, "it has %d bytes, more than %d", len(s), MaxIdentifierBytes)
	case !utf8.ValidString(s):
		return invalid(of+field, "%q is not valid UTF-8", s)
	case strings.ContainsRune(s, 0):
		return invalid(of+field, "%q contains NUL", s)
	}
	return nil
}
