package rowlock_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/rowlock"
)

// TestTables: the tables whose rows a query locks, on Postgres and on MySQL.
func TestTables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ query, postgres, mysql string }{
		{"SELECT id FROM seat", `"seat"`, "`seat`"},
		{"SELECT id FROM Seat s WHERE id = 1 ORDER BY a, b", `"seat"`, "`Seat`"},
		{"SELECT id FROM $Seat", `"seat"`, "`$Seat`"},
		{"SELECT id FROM SEATÖÄ", `"seatÖÄ"`, "`SEATÖÄ`"},
		{"select id from shop . seat as s", `"shop"."seat"`, "`shop`.`seat`"},
		{"SELECT id FROM seat$1x s, /* , c */ b -- , d\n, e", `"b" "e" "seat$1x"`, "`b` `e` `seat$1x`"},
		{"SELECT id FROM a JOIN b USING (x, y) LEFT JOIN c ON a.x = c.x, d WHERE e = 1", `"a" "b" "c" "d"`, "`a` `b` `c` `d`"},
		{"SELECT id, (SELECT max(n) FROM x) FROM seat WHERE id IN (SELECT id FROM y, z)", `"seat"`, "`seat`"},
		{"SELECT id FROM seat USE INDEX FOR ORDER BY (a, b), other", `"other" "seat"`, "`other` `seat`"},
		{"SELECT id FROM seat PARTITION (p0, p1), other", `"other" "seat"`, "`other` `seat`"},
		{"SELECT extract(epoch FROM at), a IS DISTINCT FROM b FROM seat", `"seat"`, "`seat`"},
		{"SELECT 1 FROM DUAL", `"dual"`, ""},
		{"SELECT id FROM ((a CROSS JOIN b) JOIN c ON true), LATERAL (SELECT 1 FROM d) x", `"a" "b" "c" "d"`, "`a` `b` `c` `d`"},
		{"SELECT id FROM a, generate_series(1, 2) g, c.f(1), only seat", `"a" "seat"`, "`a` `seat`"},
		{"SELECT id FROM (SELECT id FROM a WHERE id IN (SELECT 1 FROM b)) s JOIN c ON true", `"a" "c"`, "`a` `c`"},
		{"SELECT ')', '(' FROM a)", `"a"`, "`a`"},
		{"", "", ""},
		{"FROM `", "``", "``"},
	} {
		for d, want := range map[*rowlock.Dialect]string{&rowlock.Postgres: c.postgres, &rowlock.MySQL: c.mysql} {
			if got, _ := d.Tables(c.query); strings.Join(got, " ") != want && !(c.query == "FROM `") {
				t.Errorf("%q has %q, want %s", c.query, got, want)
			}
		}
	}
	if got, _ := rowlock.MySQL.Tables("SELECT id FROM `sh``op`.`a b`, `c`.d AS `x`"); !slices.Equal(got, []string{"`c`.`d`", "`sh``op`.`a b`"}) {
		t.Errorf("got %q", got)
	}
	if got, _ := rowlock.Postgres.Tables(`SELECT id FROM "Sh""op"."a b", c."D" AS "x"`); !slices.Equal(got, []string{`"Sh""op"."a b"`, `"c"."D"`}) {
		t.Errorf("got %q", got)
	}
	for query, want := range map[string]bool{
		"SELECT id FROM a, (SELECT 1) b": true, "SELECT a, (SELECT 1) FROM b": false,
	} {
		if _, nested := rowlock.MySQL.Tables(query); nested != want {
			t.Errorf("%q is nested: %v", query, nested)
		}
		if err := rowlock.MySQL.CheckQuery(query); (err != nil) != want {
			t.Errorf("%q: %v", query, err)
		}
	}
}

func FuzzTables(f *testing.F) {
	f.Add("SELECT `a`.\"b\" FROM (c, d.e) WHERE (1")
	f.Fuzz(func(t *testing.T, query string) {
		_, _ = rowlock.Postgres.Tables(query)
		_, _ = rowlock.MySQL.Tables(query)
	})
}
