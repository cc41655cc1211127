package optimistic_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic"
)

// FuzzIfMatch: each header is a condition or a client's error, and it has exactly the tags that it
// lists.
func FuzzIfMatch(f *testing.F) {
	for _, value := range []string{"*", `"3"`, `W/"3"`, `"a", W/"b",,"c"`, `"`, `""`, `"a" "b"`, "W/", ",", "\x00", "\"\xff\"", `"a`, `* , "a"`, `w/"a"`} {
		f.Add(value, "3", int64(3))
	}
	f.Fuzz(func(t *testing.T, value, version string, n int64) {
		m, err := optimistic.ParseIfMatch(value)
		var bad *dblock.InvalidError
		if err != nil && (!errors.As(err, &bad) || bad.Field != "If-Match" || m.Any() || m.Has(`""`)) {
			t.Errorf("%q: %v", value, err)
		}
		if status := optimistic.HTTPStatus(err); err != nil && status != 400 && status != 412 {
			t.Errorf("%q comes to %d: %v", value, status, err)
		}
		tags := []string{optimistic.ETag(version), optimistic.ETag(n), optimistic.ETag(time.UnixMicro(n)), optimistic.ETag([16]byte([]byte(version + "0123456789abcdef")[:16]))}
		for _, tag := range tags {
			own, err := optimistic.IfMatch(map[string][]string{"If-Match": {tag}})
			if err != nil || !own.Has(tag) || own.Any() || own.Has(tag+"x") || own.Check(tag, optimistic.Row{}) != nil {
				t.Errorf("%q is not what it says: %+v, %v", tag, own, err)
			}
			weak, err := optimistic.ParseIfMatch("W/" + tag)
			if weak.Has(tag) || weak.Any() {
				t.Errorf("W/%s matches: %v", tag, err)
			}
			if both, err := optimistic.ParseIfMatch(value + "," + tag); err == nil && !both.Has(tag) {
				t.Errorf("%q has not %q", value+","+tag, tag)
			}
		}
		if version != value && optimistic.ETag(version) == optimistic.ETag(value) {
			t.Errorf("%q and %q have one tag", version, value)
		}
	})
}
