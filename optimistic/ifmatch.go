package optimistic

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock"
)

// ErrIfMatchRequired: the request has no If-Match, and a write that has none could overwrite what
// its sender has not seen. Answer with 428: the client reads the resource, and sends its ETag.
var ErrIfMatchRequired = errors.New("optimistic: the request has no If-Match header: " +
	"read the resource first, and send the ETag that it came with")

// Match is the If-Match of a request: which versions of the row its sender has seen. The zero value
// matches none.
type Match struct {
	any  bool
	tags []string // strong ones, in quotes
	weak []string // with W/, which match nothing
}

// IfMatch reads the condition of a request from its http.Header. Without one the error is
// ErrIfMatchRequired. Others are those of ParseIfMatch.
func IfMatch(header map[string][]string) (Match, error) {
	lines := header["If-Match"]
	if len(lines) == 0 {
		return Match{}, ErrIfMatchRequired
	}
	return ParseIfMatch(strings.Join(lines, ","))
}

// ParseIfMatch reads the value of an If-Match header, as RFC 9110 has it: "*", or a list of tags in
// quotes. A weak tag (W/"3") never matches, so a Match of weak tags alone fails each Check: the
// client has to send the strong ETag that it was given. The error is a *dblock.InvalidError of the
// field "If-Match" if the value is malformed.
func ParseIfMatch(value string) (Match, error) {
	rest := strings.Trim(value, " \t")
	if rest == "*" {
		return Match{any: true}, nil
	}
	var m Match
	for {
		rest = strings.TrimLeft(rest, " \t,") // a list may have empty elements
		if rest == "" {
			break
		}
		opaque, isWeak := strings.CutPrefix(rest, "W/")
		end := tagEnd(opaque)
		after := strings.TrimLeft(opaque[end:], " \t")
		if end == 0 || after != "" && after[0] != ',' {
			return Match{}, invalid("If-Match", `%q: it is "*", or tags in double quotes with commas between them`, value)
		}
		if isWeak {
			m.weak = append(m.weak, rest[:len(rest)-len(opaque)+end])
		} else {
			m.tags = append(m.tags, opaque[:end])
		}
		rest = after
	}
	if len(m.tags)+len(m.weak) == 0 {
		return Match{}, invalid("If-Match", "it has no tag")
	}
	return m, nil
}

// tagEnd is where a tag in quotes ends that s begins with; 0: it does not.
func tagEnd(s string) int {
	if s == "" || s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return i + 1
		case !isTagByte(s[i]):
			return 0
		}
	}
	return 0
}

// Any reports whether the condition is "*": any version will do, as long as there is a row. Refuse
// it if that is too little.
func (m Match) Any() bool { return m.any }

// Has reports whether etag, as ETag makes it, is one that the sender has seen.
func (m Match) Has(etag string) bool { return m.any || slices.Contains(m.tags, etag) }

// Check is nil if the row's etag is one that the sender has seen, and else a *StaleError. It
// does not replace the check of the version in the UPDATE: between the two another caller may
// write.
func (m Match) Check(etag string, at Row) error {
	if m.Has(etag) {
		return nil
	}
	e := &StaleError{Table: at.Table, Key: at.Key, Expected: strings.Join(slices.Concat(m.tags, m.weak), ", "), Actual: etag}
	if len(m.tags) == 0 && len(m.weak) > 0 {
		return fmt.Errorf("%w (a weak tag matches nothing: send the ETag without W/, which a proxy that compresses may have added)", e)
	}
	return e
}

// HTTPStatus returns the HTTP status for an error of this package:
//
//   - 412 (Precondition Failed) for ErrStale
//   - 404 (Not Found) for ErrNotFound
//   - 428 (Precondition Required) for ErrIfMatchRequired
//   - 400 (Bad Request) for an If-Match that is malformed
//   - 503 (Service Unavailable) for ErrUnavailable, ErrOverloaded, ErrBusy and ErrConflict of
//     dblock: the same request may be sent again
//   - 500 for any other, dblock.ErrOutcomeUnknown too: a GET shows whether it was written
//   - 200 for nil
func HTTPStatus(err error) int {
	var bad *dblock.InvalidError
	switch {
	case err == nil:
		return 200
	case errors.Is(err, dblock.ErrOutcomeUnknown):
		return 500
	case errors.Is(err, ErrStale):
		return 412
	case errors.Is(err, ErrNotFound):
		return 404
	case errors.Is(err, ErrIfMatchRequired):
		return 428
	case errors.As(err, &bad) && bad.Field == "If-Match":
		return 400
	case errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrOverloaded), errors.Is(err, dblock.ErrBusy),
		errors.Is(err, dblock.ErrConflict):
		return 503
	}
	return 500
}
