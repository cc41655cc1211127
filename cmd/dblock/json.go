package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// printJSON prints one value in a line of JSON. Control and format characters of what others have
// chosen are escaped, so that they cannot change a terminal or the order of the text.
func printJSON(out io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, escaped(string(text))+"\n")
	return err
}

// escaped escapes DEL, C1 and format characters, which encoding/json leaves. In JSON they occur
// only within strings.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		if !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
