package mysql

import "testing"

func TestText(t *testing.T) {
	t.Parallel()
	got := Interpolate("SELECT ? + ?, ?, ?, ?", int64(-5), int16(7), []byte("it's \\ ?"), []byte{}, true)
	if want := `SELECT -5 + 7, x'69742773205c203f', x'', true`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTextLeavesQuotedNamesAlone(t *testing.T) {
	t.Parallel()
	got := Interpolate("SELECT ? FROM `why?`.t WHERE a = ?", int64(1), int64(2))
	if want := "SELECT 1 FROM `why?`.t WHERE a = 2"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRepeats(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		query, want string
		args        []any
	}{
		{
			"INSERT INTO t (a, b) VALUES /*dblock:rows*/(?, f(?) + 1)/*dblock:end*/ ON DUPLICATE KEY UPDATE a = ?",
			"INSERT INTO t (a, b) VALUES (1, f(2) + 1), (3, f(4) + 1) ON DUPLICATE KEY UPDATE a = 5",
			[]any{int64(1), int64(2), int64(3), int64(4), int64(5)},
		},
		{
			"-- name: A :many\nSELECT t.a FROM ( /*dblock:asks*/\n    SELECT ? AS a\n/*dblock:end*/) ask\nJOIN `t?` ON t.a = ask.a AND t.b IN (/*SLICE:b*/?)",
			"-- name: A :many\nSELECT t.a FROM ( SELECT 1 AS a UNION ALL SELECT 2 AS a) ask\nJOIN `t?` ON t.a = ask.a AND t.b IN (/*SLICE:b*/3, x'04')",
			[]any{int64(1), int64(2), List{int64(3), []byte{4}}},
		},
		{
			"SELECT CASE a /*dblock:terms*/WHEN ? THEN ? /*dblock:end*/END FROM t WHERE b IN (?)",
			"SELECT CASE a WHEN 1 THEN 2 WHEN 3 THEN 4 END FROM t WHERE b IN (NULL)",
			[]any{int64(1), int64(2), int64(3), int64(4), List{}},
		},
		{"SELECT 1 FROM t WHERE a = ? /*dblock:terms*/AND b <> ? /*dblock:end*/", "SELECT 1 FROM t WHERE a = 1 ", []any{int64(1)}},
	} {
		if got := Interpolate(of.query, of.args...); got != of.want {
			t.Errorf("got  %s\nwant %s", got, of.want)
		}
	}
}

func TestMisusePanics(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"too few arguments":  func() { Interpolate("SELECT ?, ?", int64(1)) },
		"too many arguments": func() { Interpolate("SELECT 1", int64(1)) },
		"a string":           func() { Interpolate("SELECT ?", "text") },
		"half a batch":       func() { Interpolate("SELECT 1 /*dblock:terms*/+ ? + ?/*dblock:end*/", int64(1)) },
		"an open marker":     func() { Interpolate("SELECT 1 /*dblock:terms*/+ ?", int64(1)) },
		"a strange marker":   func() { Interpolate("SELECT 1 /*dblock:term*/+ ?/*dblock:end*/", int64(1)) },
		"two batches": func() {
			Interpolate("SELECT 1 /*dblock:rows*/?/*dblock:end*/ /*dblock:rows*/?/*dblock:end*/", int64(1))
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
