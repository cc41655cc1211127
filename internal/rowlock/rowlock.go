// Package rowlock is what both engines check and say of row locks: names, keys, waits and the
// caller's own query. It sends nothing.
package rowlock

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

const (
	maxNameBytes      = 63 // on Postgres, which would cut a longer name, and mean another table
	maxNameCharacters = 64 // on MySQL and MariaDB
)

// Name quotes the name of a column: on MySQL and MariaDB with backticks.
func Name(field, name string, quote string) (string, error) {
	most := maxNameBytes
	if quote == "`" {
		most = utf8.UTFMax * maxNameCharacters
	}
	if err := root.CheckText(field, name, 1, most); err != nil {
		return "", err
	}
	if n := utf8.RuneCountInString(name); quote == "`" && n > maxNameCharacters {
		return "", &dblock.InvalidError{Field: field, Reason: fmt.Sprintf("it has %d characters, more than %d", n, maxNameCharacters)}
	}
	return quote + strings.ReplaceAll(name, quote, quote+quote) + quote, nil
}

// Table quotes the name of a table, which may have that of its schema and a dot before it.
func Table(name string, quote string) (string, error) {
	schema, table, qualified := strings.Cut(name, ".")
	if !qualified {
		return Name("table", name, quote)
	}
	if strings.Contains(table, ".") {
		return "", &dblock.InvalidError{Field: "table", Reason: fmt.Sprintf("%q has more than one dot: give a table, or schema.table", name)}
	}
	first, err := Name("table's schema", schema, quote)
	if err != nil {
		return "", err
	}
	second, err := Name("table", table, quote)
	return first + "." + second, err
}

// CheckKeys refuses none, too many, and NULL, which no row is equal to.
func CheckKeys[K any](keys []K) error {
	if len(keys) == 0 || len(keys) > dblock.MaxSetKeys {
		return &dblock.InvalidError{Field: "keys", Reason: fmt.Sprintf("there are %d, not 1 to %d", len(keys), dblock.MaxSetKeys)}
	}
	for i := range keys {
		v := reflect.ValueOf(&keys[i]).Elem()
		for v.Kind() == reflect.Interface && !v.IsNil() {
			v = v.Elem()
		}
		switch v.Kind() {
		case reflect.Interface, reflect.Pointer, reflect.Slice, reflect.Map:
			if v.IsNil() {
				return &dblock.InvalidError{Field: "keys", Reason: "one of them is nil: no row is equal to NULL"}
			}
		}
		if s, ok := v.Interface().(string); ok && strings.ContainsRune(s, 0) {
			return &dblock.InvalidError{Field: "keys", Reason: fmt.Sprintf("%q contains NUL", s)}
		}
	}
	return nil
}

// CheckWait refuses bounds that the server can't keep to. The server counts in multiples of unit,
// up to most.
func CheckWait(field string, wait dblock.TxWait, unit, most time.Duration) error {
	d, bounded := root.WaitBound(wait)
	switch {
	case !bounded:
		return nil
	case d <= 0:
		return &dblock.InvalidError{Field: field, Reason: fmt.Sprintf("%v is no time to wait for: give NoWait not to wait", d)}
	case d%unit != 0:
		return &dblock.InvalidError{Field: field, Reason: fmt.Sprintf("the server counts in steps of %v, and %v is none: round it", unit, d)}
	case d > most:
		return &dblock.InvalidError{Field: field, Reason: fmt.Sprintf("%v is longer than %v, the server's most", d, most)}
	}
	return nil
}

// CheckClaim refuses what makes no sense for a claim, which always skips.
func CheckClaim(o dblock.RowLock, n int) error {
	if o.Wait != (dblock.TxWait{}) && o.Wait != dblock.SkipLocked() {
		return &dblock.InvalidError{Field: "RowLock.Wait", Reason: "a claim passes over what is locked, and never waits: leave it out"}
	}
	if o.Strength == dblock.StrengthShare || o.Strength == dblock.StrengthKeyShare {
		return &dblock.InvalidError{Field: "RowLock.Strength", Reason: "two claims would have the same rows in a shared strength: leave it out"}
	}
	if n < 1 || n > dblock.MaxSetKeys {
		return &dblock.InvalidError{Field: "n", Reason: fmt.Sprintf("%d is not 1 to %d", n, dblock.MaxSetKeys)}
	}
	return nil
}

// Held is the error of a lock that was not had; wait is what ended the wait, nil if nothing was
// waited for.
func Held(key string, wait error) error {
	return &dblock.HeldError{Key: key, Holder: dblock.Holder{Label: "another transaction"}, Wait: wait}
}

// Bound is what ended a wait that had one.
type Bound time.Duration

func (b Bound) Error() string {
	return fmt.Sprintf("it was to take no longer than %v", time.Duration(b))
}

// Row names a row, or several, for people.
func Row[K any](table, column string, keys []K) string {
	if len(keys) == 1 {
		return fmt.Sprintf("%s.%s = %v", table, column, keys[0])
	}
	return fmt.Sprintf("%s.%s: one of %d rows", table, column, len(keys))
}
