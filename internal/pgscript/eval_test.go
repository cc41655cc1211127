package pgscript

import (
	"math"
	"strings"
	"testing"
)

// evaluate a script that sets x.
func evaluate(t *testing.T, text string) (string, error) {
	t.Helper()
	s := parse(t, text)
	v := s.Session(3, 7)
	for _, c := range s.Commands {
		if err := v.Set(c.(*Set)); err != nil {
			return "", err
		}
	}
	last := s.Commands[len(s.Commands)-1].(*Set)
	return string(v.Append(nil, Var{last.Name, last.slot})), nil
}

// The results are pgbench's own: package bench runs both on the same expressions.
func TestExpressions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 + 2 * 3":                 "7",
		"(1 + 2) * 3":               "9",
		"10 - 2 - 3":                "5",
		"100 / 10 / 5":              "2",
		"2 * -3":                    "-6",
		"- - 4":                     "4",
		"-+4":                       "-4",
		"-(1 + 2)":                  "-3",
		"-2 - -3":                   "1",
		"7 / 2":                     "3",
		"-7 / 2":                    "-3",
		"7 % 3":                     "1",
		"-7 % 3":                    "-1",
		"7 % -3":                    "1",
		"7.6 % 3":                   "2",
		"5 / -1":                    "-5",
		"5 % -1":                    "0",
		"7 / 2.0":                   "3.5",
		"1.0 / 3":                   "0.333333333333333",
		"1 / 0.0":                   "Infinity",
		"-1 / 0.0":                  "-Infinity",
		"0.0 / 0.0":                 "NaN",
		"2 + 1.0":                   "3",
		".5 + 1.":                   "1.5",
		"1e3":                       "1000",
		"1.5E-2":                    "0.015",
		"1e20":                      "1e+20",
		"-0.0":                      "0",
		"9223372036854775807":       "9223372036854775807",
		"-9223372036854775808":      "-9223372036854775808",
		"-9223372036854775808 % -1": "0",
		"-9223372036854775807 - 1":  "-9223372036854775808",
		"3037000499 * 3037000499":   "9223372030926249001",
		"-2 * 4611686018427387904":  "-9223372036854775808",
		"abs(-3)":                   "3",
		"abs(-3.5)":                 "3.5",
		"ABS(3)":                    "3",
		"greatest(1, 3, 2)":         "3",
		"greatest(1, 2.5)":          "2.5",
		"greatest(3, 2.5)":          "3",
		"least(4)":                  "4",
		"least(4, 2, 8, 3, 5)":      "2",
		"least(4, 2.0)":             "2",
		"int(2.5)":                  "2",
		"int(3.5)":                  "4",
		"int(-2.7)":                 "-3",
		"double(3) / 2":             "1.5",
		"mod(7, 3)":                 "1",
		"pi()":                      "3.14159265358979",
		"sqrt(2)":                   "1.4142135623731", // 15 digits, and the last is a 0
		"ln(exp(2))":                "2",
		"power(2, 10)":              "1024",
		"pow(2, 0.5)":               "1.4142135623731",
		":scale * 5":                "5",
		":client_id":                "3",
		":random_seed":              "7",
		"random(5, 5)":              "5",
		"random(4.6, 5.2)":          "5",
		"1 + \\\n 2":                "3",
	} {
		got, err := evaluate(t, `\set x `+text)
		if got != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestFailuresOfExpressions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"9223372036854775807 + 1":             "integer out of range in +",
		"-9223372036854775808 + -1":           "integer out of range in +",
		"-9223372036854775808 - 1":            "integer out of range in -",
		"0 - -9223372036854775808":            "integer out of range in -",
		"9223372036854775807 * 2":             "integer out of range in *",
		"4611686018427387904 * 2":             "integer out of range in *",
		"-9223372036854775808 * -1":           "integer out of range in *",
		"-9223372036854775808 / -1":           "integer out of range in /",
		"abs(-9223372036854775808)":           "integer out of range in abs",
		"1 / 0":                               "division by zero",
		"1 % 0":                               "division by zero",
		"mod(1, 0.2)":                         "division by zero",
		"int(1e19)":                           "a double that is no integer",
		"int(0.0 / 0.0)":                      "a double that is no integer",
		"1e19 % 2":                            "a double that is no integer",
		"2 % 1e19":                            "a double that is no integer",
		"random(2, 1)":                        "empty range given to random",
		"random(0, 9223372036854775807)":      "random range is too large",
		"random(-9223372036854775807, 9)":     "random range is too large",
		"random(1e19, 2)":                     "a double that is no integer",
		"random(2, 1e19)":                     "a double that is no integer",
		"random_gaussian(1, 2, 1.9)":          "gaussian parameter must be at least 2 (not 1.9)",
		"random_exponential(1, 2, 0)":         "exponential parameter must be greater than zero (not 0)",
		"random_zipfian(1, 2, 1)":             "zipfian parameter must be in range [1.001, 1000] (not 1)",
		"random_zipfian(1, 2, 0.0 / 0.0)":     "zipfian parameter must be in range [1.001, 1000] (not NaN)",
		"random(1, 2) + (3 * (1 / 0))":        "division by zero",
		"-random(2, 1)":                       "empty range given to random",
		"(1 / 0) + 1":                         "division by zero",
		"random_exponential(1, 2, 0.0 / 0.0)": "exponential parameter must be greater than zero (not NaN)",
	} {
		_, err := evaluate(t, "\\set a 1\n\\set x "+text)
		if err == nil || err.Error() != `file.sql:2: \set x: `+want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// draw calls a random function many times.
func draw(t *testing.T, text string, n int) []int64 {
	t.Helper()
	s := parse(t, `\set x `+text)
	v := s.Session(0, 42)
	c := s.Commands[0].(*Set)
	all := make([]int64, n)
	for i := range all {
		if err := v.Set(c); err != nil {
			t.Fatal(err)
		}
		all[i] = v.Value(Var{"x", c.slot}).(int64)
	}
	return all
}

func TestRandomNumbersStayInTheirRange(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"random(-3, 6)", "random_exponential(-3, 6, 3)", "random_exponential(-3, 6, 0.00001)",
		"random_gaussian(-3, 6, 2)", "random_zipfian(-3, 6, 1.2)",
	} {
		seen := map[int64]int{}
		for _, x := range draw(t, text, 20000) {
			seen[x]++
		}
		for x := range seen {
			if x < -3 || x > 6 {
				t.Errorf("%s gave %d", text, x)
			}
		}
		if len(seen) != 10 {
			t.Errorf("%s gave %d of 10 numbers: %v", text, len(seen), seen)
		}
	}
	for _, text := range []string{
		"random_zipfian(1, 100, 1000)", "random_exponential(1, 9223372036854775807, 1e300)", "random_zipfian(1, 1, 2)",
	} {
		for _, x := range draw(t, text, 1000) {
			if x != 1 {
				t.Fatalf("%s gave %d", text, x)
			}
		}
	}
	draw(t, "random(-4611686018427387904, 4611686018427387902)", 1000)
}

// The documentation of pgbench says how often what is drawn.
func TestShapesOfDistributions(t *testing.T) {
	t.Parallel()
	const n = 100000
	share := func(text string, in func(int64) bool) float64 {
		hits := 0
		for _, x := range draw(t, text, n) {
			if in(x) {
				hits++
			}
		}
		return float64(hits) / n
	}
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 0.01 {
			t.Errorf("%s: got %.4f, want %.4f", what, got, want)
		}
	}
	near("uniform", share("random(1, 10)", func(x int64) bool { return x <= 3 }), 0.3)
	exponential := func(x float64) float64 { // the share of the values up to x of 100
		return (1 - math.Exp(-5*x/100)) / (1 - math.Exp(-5.0))
	}
	near("exponential", share("random_exponential(1, 100, 5.0)", func(x int64) bool { return x <= 20 }), exponential(20))
	// "67% of values are drawn from the middle 1.0 / parameter … 95% in the middle 2.0 / parameter"
	near("gaussian", share("random_gaussian(1, 1000, 4.0)", func(x int64) bool { return x > 375 && x <= 625 }), 0.6827)
	near("gaussian", share("random_gaussian(1, 1000, 4.0)", func(x int64) bool { return x > 250 && x <= 750 }), 0.9545)
	// "the ratio of the probability of drawing k versus drawing k+1 is ((k+1)/k)**parameter"
	one := share("random_zipfian(1, 1000, 2.5)", func(x int64) bool { return x == 1 })
	two := share("random_zipfian(1, 1000, 2.5)", func(x int64) bool { return x == 2 })
	if ratio := one / two; math.Abs(ratio-math.Pow(2, 2.5)) > 0.2 {
		t.Errorf("zipfian: 1 came %.2f times as often as 2, want %.2f", ratio, math.Pow(2, 2.5))
	}
}

func TestSameSeedSameNumbers(t *testing.T) {
	t.Parallel()
	s := parse(t, `\set x random(1, 1000000000)`)
	next := func(v *Session) any {
		if err := v.Set(s.Commands[0].(*Set)); err != nil {
			t.Fatal(err)
		}
		return v.Value(Var{"x", s.Commands[0].(*Set).slot})
	}
	if a, b := next(s.Session(1, 5)), next(s.Session(1, 5)); a != b {
		t.Errorf("the same seed gave %v and %v", a, b)
	}
	if a, b := next(s.Session(1, 5)), next(s.Session(2, 5)); a == b {
		t.Errorf("two clients drew %v", a)
	}
	if a, b := next(s.Session(1, 5)), next(s.Session(1, 6)); a == b {
		t.Errorf("two seeds gave %v", a)
	}
}

func TestDefinedVariables(t *testing.T) {
	t.Parallel()
	s, err := Parse("file.sql", "SELECT :name, :n, :scale, :f;\n\\set n :n + :f\n\\set name 1\n\\set name :name + 1\nSELECT :name, :n", map[string]string{
		"name": "a'b", "n": "007", "scale": "20", "f": " 1.50", "client_id": "99",
	})
	if err != nil {
		t.Fatal(err)
	}
	v := s.Session(0, 1)
	text := func(i int) string {
		var parts []string
		for _, of := range s.Commands[i].(*SQL).Vars {
			parts = append(parts, string(v.Append(nil, of)))
		}
		return strings.Join(parts, "|")
	}
	if got := text(0); got != "a'b|007|20| 1.50" {
		t.Errorf("got %s", got)
	}
	if got := v.Value(s.Commands[0].(*SQL).Vars[0]); got != "a'b" {
		t.Errorf("got %v", got)
	}
	for _, i := range []int{1, 2, 3} {
		if err := v.Set(s.Commands[i].(*Set)); err != nil {
			t.Fatal(err)
		}
	}
	if got := text(4); got != "2|8.5" {
		t.Errorf("got %s", got)
	}
	if got := v.slots[clientSlot].text; got != "99" {
		t.Errorf("client_id is %s", got)
	}
	for text, want := range map[string]string{
		"SELECT 1;\n\\set x :name": `file.sql:2: \set: the variable :name is not a number`,
		"\\sleep :name":            `file.sql:1: \sleep: the variable :name is not a number`,
	} {
		if _, err := Parse("file.sql", text, map[string]string{"name": "x"}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for name, value := range map[string]string{"": "1", "1a": "1", "a b": "1", "zero": "\x00"} {
		if _, err := Parse("file.sql", "SELECT 1", map[string]string{name: value}); err == nil {
			t.Errorf("%q = %q was taken", name, value)
		}
	}
}

func TestEvaluationAllocatesNothing(t *testing.T) {
	s := parse(t, "\\set aid random(1, 100000 * :scale)\nSELECT :aid")
	v := s.Session(0, 1)
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		if err := v.Set(s.Commands[0].(*Set)); err != nil {
			t.Fatal(err)
		}
		buf = v.Append(buf[:0], s.Commands[1].(*SQL).Vars[0])
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
