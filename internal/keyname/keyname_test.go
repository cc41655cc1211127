package keyname_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/keyname"
)

func TestDifferentPartsGiveDifferentTexts(t *testing.T) {
	t.Parallel()
	if got := keyname.Join("a", "b", "c"); got != "a\x00b\x00c" {
		t.Errorf("%q", got)
	}
	seen := make(map[string][]string)
	for _, parts := range [][]string{
		{"a\x00b", "c"}, {"a", "b\x00c"}, {"", "a\x00b\x00c"}, {"a\x00", "b\x00c"}, {"a\x00b\x00", "c"}, {"a\x00b", "\x00c"}, {"a", "b"},
		{keyname.Join("a\x00b", "c"), ""}, {"", keyname.Join("a\x00b", "c")},
	} {
		text := keyname.Join(parts...)
		if other, twice := seen[text]; twice {
			t.Errorf("%q and %q both give %q", other, parts, text)
		}
		seen[text] = parts
	}
}
