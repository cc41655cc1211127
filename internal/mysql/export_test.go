package mysql

import (
	"slices"
	"strings"
)

// Expanded returns a query whose marked part stands n times, and with its question marks. It
// reports false if no part is marked.
func Expanded(query string, n int) (expanded string, isMarked bool) {
	t := parse(query, false)
	parts := strings.Join(slices.Repeat([]string{t.part}, n), t.separator)
	return t.comment + t.verb + t.before + parts + t.after, t.inside > 0
}
