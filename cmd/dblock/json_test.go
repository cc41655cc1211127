package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestJSONHasNoControlCharacters(t *testing.T) {
	t.Parallel()
	const evil = "a\u009b2Jb\u202ec\x7fd\x1be\u200bf\U000e0001g\nh é 語 🔒"
	var out strings.Builder
	if err := printJSON(&out, map[string]string{evil: evil}); err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSuffix(out.String(), "\n")
	if strings.ContainsAny(line, "\u009b\u202e\x7f\x1b\u200b\U000e0001\n") || !strings.Contains(line, "é 語 🔒") {
		t.Errorf("%q", line)
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(line), &back); err != nil || back[evil] != evil {
		t.Errorf("%q, %v", back, err)
	}
}
