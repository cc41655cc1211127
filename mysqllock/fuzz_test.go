package mysqllock

import (
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// FuzzNames: keys that differ have names that differ, in a form that no server folds or cuts. A raw
// name is as GET_LOCK takes it, or ErrInvalid, and needs no escapes.
func FuzzNames(f *testing.F) {
	for _, key := range []string{"a", "A", "", "orders/42", "it's", `a\`, "é", "\x00", "\xff", strings.Repeat("x", 64), strings.Repeat("x", 65), "a b", "`", "%"} {
		f.Add("app", "", key, "billing", "orders/42")
	}
	f.Fuzz(func(t *testing.T, database, namespace, name, otherNamespace, otherName string) {
		for _, s := range []string{database, namespace, name, otherNamespace, otherName} {
			if strings.Contains(s, "\x00") { // no name, no namespace and no key has it
				return
			}
		}
		one, other := NameOf(database, namespace, name), NameOf(database, otherNamespace, otherName)
		if (one == other) != (namespace == otherNamespace && name == otherName) {
			t.Errorf("%q, %q and %q, %q are %q and %q", namespace, name, otherNamespace, otherName, one, other)
		}
		if len(one) != 64 || strings.Trim(one, "0123456789abcdef") != "" {
			t.Errorf("%q is no name that all servers take alike", one)
		}
		raw := &sessionDriver{raw: true}
		id, err := raw.ID(name)
		if err != nil && !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("raw %q: %v", name, err)
		}
		if err == nil && (len(id) == 0 || len(id) > 64 || strings.ContainsAny(string(id), "'\"\\\x00") || !strings.EqualFold(string(id), name)) {
			t.Errorf("raw %q is %q", name, id)
		}
		if text := mysql.Interpolate("SELECT ?", []byte(name)); strings.ContainsRune(text[len("SELECT x'"):len(text)-1], '\'') {
			t.Errorf("%q becomes %s", name, text)
		}
	})
}

// FuzzVerdicts: each error packet has one class, and the answers to users agree with it.
func FuzzVerdicts(f *testing.F) {
	for _, number := range []uint16{0, 1020, 1205, 1213, 1317, 1927, 3058, 3572, 65535} {
		f.Add(number, "HY000", "no")
	}
	f.Add(uint16(1105), "40001", "")
	f.Fuzz(func(t *testing.T, number uint16, state, message string) {
		err := faultconn.MySQLError(number, state, message)
		class := (*conns)(nil).Classify(err)
		if class < sqlerr.Unclassified || class > sqlerr.NotPermitted || class == sqlerr.Retryable && !Retryable(err) {
			t.Errorf("%v is of class %d", err, class)
		}
		if IsDeadlock(err) && !Retryable(err) || IsLockTimeout(err) && class != sqlerr.Busy && class != sqlerr.Retryable {
			t.Errorf("%v: deadlock %v, timeout %v, class %d", err, IsDeadlock(err), IsLockTimeout(err), class)
		}
		if (*conns)(nil).Classify(half(err, true)) != sqlerr.Unresolved {
			t.Errorf("%v after a part was written is not unknown", err)
		}
		for _, final := range []error{dblock.ErrFenced, dblock.ErrLost, dblock.ErrOutcomeUnknown} {
			if Retryable(errors.Join(err, final)) {
				t.Errorf("%v would run again after %v", err, final)
			}
		}
	})
}
