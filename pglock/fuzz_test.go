package pglock

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
)

// FuzzKeys: names that differ have numbers that differ, and a raw key is its number or ErrInvalid.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{"0", "-0", "+1", "01", "9223372036854775807", "9223372036854775808", "0x1", "1e3", " 1", "", "Grüße", "\xff"} {
		f.Add("", key, "billing", "42")
	}
	f.Add("a", "b", "", "ab")
	f.Fuzz(func(t *testing.T, namespace, name, otherNamespace, otherName string) {
		for _, s := range []string{namespace, name, otherNamespace, otherName} {
			if strings.Contains(s, "\x00") { // no namespace and no key has it
				return
			}
		}
		same := namespace == otherNamespace && name == otherName
		one, other := KeyOf(namespace, name), KeyOf(otherNamespace, otherName)
		if (one == other) != same {
			t.Errorf("%q, %q and %q, %q have the numbers %d and %d", namespace, name, otherNamespace, otherName, one, other)
		}
		hashed := &sessionDriver{namespace: namespace}
		if id, err := hashed.ID(name); err != nil || keyOf(id) != int64(one) {
			t.Errorf("%q: %q, %v", name, id, err)
		}
		raw := &sessionDriver{raw: true}
		id, err := raw.ID(name)
		switch n, bad := strconv.ParseInt(name, 10, 64); {
		case err != nil:
			if !errors.Is(err, dblock.ErrInvalid) || bad == nil {
				t.Errorf("raw %q: %v", name, err)
			}
		case keyOf(id) != n || len(id) != 8:
			t.Errorf("raw %q is %q", name, id)
		}
		if waiterKey(int64(one)) == int64(one) || (waiterKey(int64(one)) == waiterKey(int64(other))) != same {
			t.Errorf("the marks of %d and %d", one, other)
		}
		if err := session.CheckNamespace(namespace, false, "RawKeys"); err != nil && !errors.Is(err, dblock.ErrInvalid) {
			t.Error(err)
		}
	})
}
