package optimistic_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic"
)

type (
	number int32
	text   string
	id     [16]byte
)

func TestETag(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	for want, got := range map[string]string{
		`"0"`: optimistic.ETag(0), `"3"`: optimistic.ETag(3), `"-3"`: optimistic.ETag(number(-3)), `"18446744073709551615"`: optimistic.ETag(uint64(math.MaxUint64)),
		`"v,1"`: optimistic.ETag("v,1"), `"%22a%20b%22%25%C3%A4%00"`: optimistic.ETag(text("\"a b\"%ä\x00")), `""`: optimistic.ETag(""),
		`"00010203-0405-0607-0809-0a0b0c0d0e0f"`: optimistic.ETag(id{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}),
		`"1782903600123456"`:                     optimistic.ETag(at),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		m, err := optimistic.ParseIfMatch(got)
		if err != nil || !m.Has(got) {
			t.Errorf("%s does not come back: %v", got, err)
		}
	}
	if optimistic.ETag(at) != optimistic.ETag(at.UTC().Truncate(time.Microsecond)) {
		t.Error("a time in another zone, as a database keeps it, has another tag")
	}
}

func TestParseIfMatch(t *testing.T) {
	t.Parallel()
	for value, has := range map[string]map[string]bool{
		`"3"`:             {`"3"`: true, `"4"`: false, `3`: false},
		` "3" ,	"4"`:      {`"3"`: true, `"4"`: true, `"5"`: false},
		`, "3",, "a,b" ,`: {`"3"`: true, `"a,b"`: true, `"a"`: false},
		`*`:               {`"3"`: true},
		`W/"3", "4"`:      {`"3"`: false, `"4"`: true},
		`"3", W/"3"`:      {`"3"`: true},
		`W/"3"`:           {`"3"`: false, `W/"3"`: false},
		`W/"3" , W/"4"`:   {`"3"`: false, `"4"`: false},
		"\"\xfc\"":        {"\"\xfc\"": true},
		`"W/"`:            {`"W/"`: true},
	} {
		m, err := optimistic.ParseIfMatch(value)
		if err != nil || m.Any() != (value == "*") {
			t.Errorf("%s: %v", value, err)
		}
		for tag, want := range has {
			if got := m.Has(tag); got != want {
				t.Errorf("%s: that it has %s is %v", value, tag, got)
			}
		}
	}
	for _, value := range []string{"", " ", ",", "3", `"3`, `3"`, `"3" "4"`, `"3"x`, `*, "3"`, `"3", *`, `W/3`, `w/"3"`, `"a b"`,
		`W/`,
		"\"a\x7f\"", "**"} {
		m, err := optimistic.ParseIfMatch(value)
		var bad *dblock.InvalidError
		if !errors.As(err, &bad) || bad.Field != "If-Match" || m.Has(`"3"`) || m.Any() || optimistic.HTTPStatus(err) != http.StatusBadRequest {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestIfMatch(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	if _, err := optimistic.IfMatch(header); err != optimistic.ErrIfMatchRequired {
		t.Errorf("without one: %v", err)
	}
	header.Add("if-match", `"2"`)
	header.Add("If-Match", `"3"`)
	m, err := optimistic.IfMatch(header)
	if err != nil || !m.Has(`"2"`) || !m.Has(`"3"`) || m.Has(`"4"`) {
		t.Errorf("of two lines: %+v, %v", m, err)
	}
	if err := m.Check(optimistic.ETag(3), at); err != nil {
		t.Error(err)
	}
	var conflict *optimistic.StaleError
	if err := m.Check(optimistic.ETag(4), at); !errors.As(err, &conflict) || conflict.Actual != `"4"` || conflict.Key != 17 {
		t.Errorf("another version: %v", err)
	}
	for _, weak := range []string{`W/"4"`, `W/"3", W/"4"`} { // a failed condition, and no bad request
		m, err := optimistic.ParseIfMatch(weak)
		if err != nil {
			t.Fatal(err)
		}
		err = m.Check(optimistic.ETag(4), at)
		if !errors.As(err, &conflict) || conflict.Expected != weak || optimistic.HTTPStatus(err) != http.StatusPreconditionFailed {
			t.Errorf("%s: %v", weak, err)
		}
	}
	if (optimistic.Match{}).Has(`""`) {
		t.Error("the zero value matches something")
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		err  error
		want int
	}{
		{nil, 200}, {conflict(), 412}, {fmt.Errorf("a service: %w", conflict()), 412}, {&optimistic.NotFoundError{}, 404},
		{optimistic.ErrIfMatchRequired, 428}, {&dblock.InvalidError{Field: "If-Match"}, 400}, {&dblock.InvalidError{Field: "Attempts"}, 500},
		{dblock.ErrUnavailable, 503}, {dblock.ErrOverloaded, 503}, {dblock.ErrBusy, 503}, {dblock.ErrConflict, 503},
		{dblock.ErrOutcomeUnknown, 500}, {errors.Join(conflict(), dblock.ErrOutcomeUnknown), 500}, {errMine, 500},
	} {
		if got := optimistic.HTTPStatus(of.err); got != of.want {
			t.Errorf("%v comes to %d, want %d", of.err, got, of.want)
		}
	}
}
