package schema_test

import (
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/schema"
)

func TestQuote(t *testing.T) {
	t.Parallel()
	if got, want := schema.QuotePostgres(`a"b`), `"a""b"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := schema.QuoteMySQL("a`b"), "`a``b`"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"x\n-- +goose ENVSUB ON\n${HOME}": false, "\u009b": false,
		"":                       true,
		"locks":                  true,
		`o"dd ` + "`name":        true,
		"Größe":                  true,
		strings.Repeat("x", 63):  true,
		"app.locks":              false,
		".locks":                 false,
		"locks.":                 false,
		" ":                      false,
		"a\x00b":                 false,
		"\xff":                   false,
		strings.Repeat("x", 65):  false,
		strings.Repeat("é", 65):  false,
		strings.Repeat("x", 999): false,
	} {
		if err := schema.CheckPostgresName(name); (err == nil) != good {
			t.Errorf("CheckPostgresName(%q) = %v", name, err)
		}
		if err := schema.CheckMySQLName(name); (err == nil) != good {
			t.Errorf("CheckMySQLName(%q) = %v", name, err)
		}
	}
}

// The limits differ in number and in unit.
func TestCheckNameCountsAsTheEngineDoes(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("é", 40)
	if err := schema.CheckPostgresName(wide); err == nil {
		t.Error("80 bytes accepted on Postgres")
	}
	if err := schema.CheckMySQLName(wide); err != nil {
		t.Errorf("40 characters refused on MySQL: %v", err)
	}
	if err := schema.CheckPostgresName(strings.Repeat("x", 64)); err == nil {
		t.Error("64 bytes accepted on Postgres")
	}
}
