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

func TestRows(t *testing.T) {
	t.Parallel()
	const one = "INSERT INTO t (a, b) VALUES (?, f(?) + 1) ON DUPLICATE KEY UPDATE a = VALUES(a)"
	got := RepeatRows(one, 3)
	want := "INSERT INTO t (a, b) VALUES (?, f(?) + 1), (?, f(?) + 1), (?, f(?) + 1) ON DUPLICATE KEY UPDATE a = VALUES(a)"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if RepeatRows(one, 1) != one {
		t.Error("one row is not the statement itself")
	}
}

func TestAsks(t *testing.T) {
	t.Parallel()
	const one = "SELECT t.a FROM (\n    SELECT ? AS a, ? AS b\n) ask\nJOIN t ON t.a = ask.a"
	got := RepeatAsks(one, 3)
	want := "SELECT t.a FROM (\n    SELECT ? AS a, ? AS b UNION ALL SELECT ? AS a, ? AS b UNION ALL SELECT ? AS a, ? AS b\n) ask\nJOIN t ON t.a = ask.a"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if RepeatAsks(one, 1) != one {
		t.Error("one ask is not the statement itself")
	}
}

func TestMisusePanics(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"too few arguments":  func() { Interpolate("SELECT ?, ?", int64(1)) },
		"too many arguments": func() { Interpolate("SELECT 1", int64(1)) },
		"a string":           func() { Interpolate("SELECT ?", "text") },
		"no row":             func() { RepeatRows("INSERT INTO t VALUES (1", 2) },
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
