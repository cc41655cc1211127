package schema

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzNames: a name that is accepted fits the server, and quoting it can be undone.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"", "public", `a"b`, "a`b", "a.b", " ", "\x00", "\xff", "Grüße 🔒", strings.Repeat("x", 65), `"; DROP SCHEMA public; --`} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		postgres, mysql := CheckPostgresName(name), CheckMySQLName(name)
		if postgres == nil && len(name) > 63 || mysql == nil && utf8.RuneCountInString(name) > 64 {
			t.Errorf("%q is too long", name)
		}
		if (postgres == nil || mysql == nil) && (!utf8.ValidString(name) || strings.ContainsAny(name, "\x00.")) {
			t.Errorf("%q is accepted", name)
		}
		for quote, quoted := range map[string]string{`"`: QuotePostgres(name), "`": QuoteMySQL(name)} {
			inner := quoted[1 : len(quoted)-1]
			if strings.ReplaceAll(inner, quote+quote, quote) != name || strings.Count(inner, quote) != 2*strings.Count(name, quote) {
				t.Errorf("%q is quoted as %s", name, quoted)
			}
		}
	})
}
