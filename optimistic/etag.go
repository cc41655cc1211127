package optimistic

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// ETaggable is what a row's version may be in an ETag. A time counts in microseconds, as databases
// keep it.
type ETaggable interface {
	~int | ~int16 | ~int32 | ~int64 | ~uint | ~uint16 | ~uint32 | ~uint64 | ~string | ~[16]byte | time.Time
}

// ETag is a version as the ETag header of HTTP carries it, a strong one, in quotes: "3" for 3, a
// UUID in its usual form, a time as its microseconds since 1970. Versions of one type that differ
// have tags that differ. A string is taken as it is, but for what may not stand in a tag, which is
// written %XX, as the percent sign is.
//
// It names the row, and not one of its representations: serve the same row as JSON and as HTML at
// two URLs. A proxy that compresses makes tags weak, and those never match: see ParseIfMatch.
func ETag[V ETaggable](version V) string {
	if t, isTime := any(version).(time.Time); isTime {
		return quoted(strconv.FormatInt(t.UnixMicro(), 10))
	}
	v := reflect.ValueOf(version)
	switch {
	case v.CanInt():
		return quoted(strconv.FormatInt(v.Int(), 10))
	case v.CanUint():
		return quoted(strconv.FormatUint(v.Uint(), 10))
	case v.Kind() == reflect.String:
		return quoted(escaped(v.String()))
	}
	var id [16]byte
	reflect.Copy(reflect.ValueOf(&id).Elem(), v)
	return quoted(driver.FormatUUID(id))
}

func quoted(s string) string { return `"` + s + `"` }

// escaped keeps to the visible ASCII of RFC 9110's etagc. What is beyond it would be allowed, and
// is mangled on the way.
func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isTagByte(c) && c < 0x7F && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// isTagByte is RFC 9110's etagc.
func isTagByte(c byte) bool { return c == '!' || c >= '#' && c != 0x7F }
