package rowlock_test

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/rowlock"
)

func TestCheckQuery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query           string
		postgres, mysql bool // whether it is taken
	}{
		{"SELECT id FROM seat", true, true},
		{"\n select id from seat where sold = 0 order by id", true, true},
		{"/* free */ SELECT id FROM seat -- for update; limit 1", true, true},
		{"SELECT id FROM seat WHERE note = 'for update; limit 1'", true, true},
		{"SELECT id FROM seat WHERE note = 'it''s; limit'", true, true},
		{`SELECT "limit", "for" FROM "for; update"`, true, true},
		{"SELECT `limit` FROM `for; update`", true, true},
		{"SELECT s.limit, s.group FROM seat s", true, true},
		{"SELECT (SELECT max(n) FROM x GROUP BY y LIMIT 1) FROM seat", true, true},
		{"SELECT id FROM seat WHERE a IS DISTINCT FROM b", true, true},
		{"SELECT id FROM seat WHERE EXISTS (SELECT 1 FROM x LIMIT 1)", false, false},
		{"SELECT id FROM seat WHERE id IN (select seat FROM booking)", false, false},
		{"SELECT id FROM seat ORDER BY (SELECT 1)", false, false},
		{"SELECT id FROM seat WHERE id NOT IN (TABLE sold)", false, false},
		{"SELECT id FROM seat ORDER BY (/**/table sold)", false, false},
		{"SELECT id FROM seat s WHERE s.select = 1 AND s.table = 2 AND tables = 3", true, true},
		{"SELECT s.from, s.join, s.over FROM seat s WHERE s.over = s.join", true, true},
		{"SELECT id FROM seat WHERE u & 1 = 0", true, true},
		{"SELECT a IS DISTINCT FROM b, (SELECT 1) FROM seat", true, true},
		{"SELECT s.id FROM seat s LEFT JOIN booking b ON b.id = s.id WHERE b.id IS NULL", false, false},
		{"SELECT s.id FROM seat s, event e WHERE e.id = s.event", false, false},
		{"SELECT s.id FROM seat s STRAIGHT_JOIN event", false, false},
		{"SELECT id, price FROM seat USE INDEX (a, b) WHERE id IN (1, 2) ORDER BY id, price", true, true},
		{"SELECT id FROM seat USE INDEX FOR ORDER BY (a), event", false, false},
		{"SELECT id FROM seat WHERE LEFT(name, 1) = 'a'", true, true},
		{"SELECT id FROM seat /*!50000 WHERE EXISTS (SELECT 1 FROM b) */", true, false},
		{"SELECT id FROM seat /*M! WHERE a */", true, false},
		{`SELECT id FROM U&"se\0061t"`, false, true},
		{"SELECT id FROM seat WHERE note = '(select)' AND selected = 1", true, true},
		{"SELECT count(*) FROM seat", false, false},
		{"SELECT max, counted FROM seat WHERE max = 1", true, true},
		{"SELECT id, row_number() OVER () FROM seat", false, false},
		{"SELECT (row_number() OVER (ORDER BY id)) FROM seat", true, false},
		{"SELECT id FROM seat ORDER BY (rank() over w)", true, false},
		{"SELECT SQL_NO_CACHE DISTINCT price FROM seat", false, false},
		{"SELECT DISTINCTROW price FROM seat", false, false},
		{"SELECT a IS NOT DISTINCT FROM b FROM seat WHERE a IS DISTINCT FROM b", true, true},
		{"SELECT SQL_CALC_FOUND_ROWS id FROM seat", false, false},
		{"SELECT id FROM seat USE INDEX FOR ORDER BY (a)", true, true},
		{"SELECT id, limits, locked FROM seat WHERE unlock = 1", true, true},
		{"SELECT $tag$ ; limit $tag$ FROM seat WHERE a = $1", true, false},
		{"SELECT $$ ; $$ FROM seat", true, false},
		{`SELECT 'a\'; limit' FROM seat`, false, false},
		{`SELECT id FROM seat WHERE a = 'it\'s' AND EXISTS (SELECT 1) AND b = 'x'`, false, false},
		{`SELECT id FROM seat WHERE a = "it\"s" AND EXISTS (SELECT 1) AND b = "x"`, false, false},
		{`SELECT id FROM seat WHERE a = E'it\'s' AND is_free(id) AND b = 'x'`, false, false},
		{`SELECT id FROM seat WHERE a = 'a\n\\b'`, true, true},
		{"SELECT id FROM seat --\r WHERE EXISTS (SELECT 1)", false, true},
		{"SELECT id FROM seat --\r ' \n WHERE EXISTS (SELECT 1) -- '", true, false},
		{"SELECT id FROM seat WHERE id = 5--1 AND EXISTS (SELECT 1)", true, false},
		{"SELECT id FROM seat -- \x01 (SELECT 1)\n--\n--", true, true},
		{"SELECT id FROM seat /* /* */ ' */ WHERE EXISTS (SELECT 1) /* ' */", false, true},
		{"SELECT id AS x$a$ FROM seat LIMIT 1 -- $a$", false, false},
		{"SELECT id FROM Öffnung", false, true},
		{`SELECT id AS Öffnung FROM "Öffnung" WHERE "Ö" = plätze`, true, true},
		{"SELECT id FROM seat WHERE Свободно", true, true},
		{"SELECT id FROM seat, seat AS other", false, false},
		{"SELECT id FROM shop.where, event", false, false},
		{"SELECT id FROM seat # ; limit", false, true},
		{"SELECT id FROM (SELECT id FROM seat) s", false, false},
		{"SELECT id FROM seat JOIN (SELECT 1) s", false, false},
		{"SELECT id FROM seats()", false, false},
		{"SELECT id FROM (VALUES (1)) s (id)", false, false},
		{"SELECT 1", false, false},
		{"SELECT id FROM seat, generate_series(1, 2) g", false, false},
		{"", false, false},
		{"-- nothing", false, false},
		{"(SELECT id FROM seat)", false, false},
		{"WITH s AS (SELECT 1) SELECT id FROM seat", false, false},
		{"DELETE FROM seat", false, false},
		{"SELECT id FROM seat;", false, false},
		{"SELECT id FROM seat WHERE a IN (1; 2)", false, false},
		{"SELECT id FROM seat FOR UPDATE", false, false},
		{"SELECT id FROM seat for\tno key update", false, false},
		{"SELECT id FROM seat FOR/**/SHARE", false, false},
		{"SELECT id FROM seat FOR KEY SHARE", false, false},
		{"SELECT id FROM seat LOCK IN SHARE MODE", false, false},
		{"SELECT id FROM seat LIMIT 3", false, false},
		{"SELECT id FROM seat FETCH FIRST ROW ONLY", false, false},
		{"SELECT id FROM seat OFFSET 3", false, false},
		{"SELECT id FROM seat WHERE price > 5. OFFSET 3", false, false},
		{"SELECT id FROM seat WHERE price > 5. OR EXISTS (SELECT 1)", false, false},
		{"SELECT id FROM seat s WHERE s.limit > .5", true, true},
		{"SELECT id FROM seat WHERE id > @v. GROUP BY id", true, false}, // a column of v
		{"SELECT id FROM seat WHERE id > @`v.` OR id > @@session.limit", true, true},
		{"SELECT DISTINCT sold FROM seat", false, false},
		{"SELECT sold FROM seat GROUP BY sold HAVING true", false, false},
		{"SELECT id FROM seat UNION SELECT 1", false, false},
		{"SELECT id INTO x FROM seat", false, false},
		{"SELECT id FROM seat WHERE a = '\x00'", false, false},
	} {
		for d, want := range map[*rowlock.Dialect]bool{&rowlock.Postgres: c.postgres, &rowlock.MySQL: c.mysql} {
			err := d.CheckQuery(c.query)
			if (err == nil) != want || err != nil && !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("%q in %+v: %v", c.query, *d, err)
			}
		}
	}
}

func FuzzCheckQuery(f *testing.F) {
	f.Add("SELECT 'a' FROM $$b$$ -- c")
	f.Fuzz(func(t *testing.T, query string) {
		_ = rowlock.Postgres.CheckQuery(query)
		_ = rowlock.MySQL.CheckQuery(query)
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"seat": `"seat"`, "shop.seat": `"shop"."seat"`, `a"b.c"`: `"a""b"."c"""`, "a.": "", ".": "", "": "", "a.b.c": "", "\xff": "", "a\x00": "",
	} {
		got, err := rowlock.Table(name, `"`)
		if want == "" && !errors.Is(err, dblock.ErrInvalid) || want != "" && (err != nil || got != want) {
			t.Errorf("%q: %s, %v", name, got, err)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	var none *int
	for name, err := range map[string]error{
		"nil":         rowlock.CheckKeys([]any{1, nil}),
		"nil pointer": rowlock.CheckKeys([]*int{none}),
		"nil bytes":   rowlock.CheckKeys([][]byte{nil}),
		"in any":      rowlock.CheckKeys([]any{none}),
		"NUL":         rowlock.CheckKeys([]any{"a\x00"}),
		"none":        rowlock.CheckKeys([]int{}),
	} {
		if !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := rowlock.CheckKeys([]any{1, "a", [16]byte{}, []byte{}}); err != nil {
		t.Error(err)
	}
}
