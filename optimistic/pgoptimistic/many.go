package pgoptimistic

import (
	"context"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// many is one statement. dblock_want are the rows asked for, with their place; held are those
// there are, locked in the order of their keys, and whether each has the version expected: as they
// are now, whatever the statement's snapshot shows. A row that two keys mean is counted twice, and
// nothing is written then. single has the columns that can't be sent as an array of their values;
// each value of so many rows is a parameter of its own then.
func many(p *driver.Plan, op driver.Op, set []driver.Column, single []bool, rows int) string {
	n := 0
	var arrays, names []string
	list := func(name, typ string) string {
		n++
		arrays, names = append(arrays, fmt.Sprintf("pg_catalog.unnest($%d::%s[])", n, typ)), append(names, name)
		return "w." + name
	}
	key := fmt.Sprintf("w.key::%s", p.KeyColumn.Type)
	list("key", sent(p.KeyColumn))
	condition := matches(p, func(i int) string {
		name := list(fmt.Sprintf("v%d", i), versionType(p, i))
		if p.Kind == driver.Columns && p.Token[i].Own {
			return name + "::text"
		}
		return name
	})
	given := ""
	if p.Kind == driver.UUID {
		given = list("next", "text")
	}
	columns, values := []string{}, []string{}
	for i, c := range set {
		if single != nil && single[i] {
			var value strings.Builder
			value.WriteString("CASE w.place")
			for row := range rows {
				n++
				fmt.Fprintf(&value, " WHEN %d THEN $%d::%s", row+1, n, c.Type)
			}
			columns, values = append(columns, quoted(c.Name)), append(values, value.String()+" END")
			continue
		}
		value := list(fmt.Sprintf("s%d", i), sent(c))
		if c.Own {
			value += "::" + c.Type
		}
		columns, values = append(columns, quoted(c.Name)), append(values, value)
	}
	if p.Kind != driver.Columns {
		columns, values = append(columns, quoted(p.Token[0].Name)), append(values, bump(p, given))
	}
	all, lacking := "", "false"
	if op == driver.ManyAll {
		all = " AND (SELECT count(*) FROM held WHERE held.same) = (SELECT count(*) FROM dblock_want)"
		lacking = fmt.Sprintf("CASE WHEN h.same AND NOT (SELECT yes FROM twice)%s THEN %s ELSE false END",
			all, suppressedError("w.place"))
	}
	versions := read(p)
	var was, became, olds, news []string
	for i, expr := range versions {
		was, olds = append(was, fmt.Sprintf("%s AS r%d", expr, i)), append(olds, fmt.Sprintf("h.r%d", i))
	}
	for i, expr := range written(p, versions, condition, "w.place") {
		became, news = append(became, fmt.Sprintf("%s AS r%d", expr, i)), append(news, fmt.Sprintf("d.r%d", i))
	}
	k := "t." + quoted(p.Key)
	return fmt.Sprintf(`WITH dblock_want AS MATERIALIZED (
  SELECT * FROM ROWS FROM (%s) WITH ORDINALITY AS w(%s, place) WHERE %s
), held AS MATERIALIZED (
  SELECT w.place, %s AS key, %s AS same, %s FROM dblock_want AS w JOIN %s AS t ON %s ORDER BY %s FOR NO KEY UPDATE OF t
), twice AS MATERIALIZED (
  SELECT count(*) <> pg_catalog.count(DISTINCT held.key) AS yes FROM held
), done AS (
  UPDATE %s AS t SET %s FROM dblock_want AS w JOIN held AS h ON h.place = w.place
  WHERE %s AND h.same AND NOT (SELECT yes FROM twice)%s
  RETURNING w.place, %s
)
SELECT w.place, h.place IS NOT NULL, coalesce(h.same, false), CASE WHEN d.place IS NOT NULL THEN true ELSE %s END, (SELECT yes FROM twice), %s, %s
FROM dblock_want AS w LEFT JOIN held AS h ON h.place = w.place LEFT JOIN done AS d ON d.place = w.place`,
		strings.Join(arrays, ", "), strings.Join(names, ", "), unaltered(p, set),
		k, condition, strings.Join(was, ", "), p.From, hasKey(p, key), k,
		p.From, assigned(columns, values),
		hasKey(p, "h.key"), all,
		strings.Join(became, ", "), lacking,
		strings.Join(olds, ", "), strings.Join(news, ", "))
}

// sent is the type that values of a column are sent in: pgx knows no arrays of the host's own
// types.
func sent(c driver.Column) string {
	if c.Own {
		return "text"
	}
	return c.Type
}

func versionType(p *driver.Plan, i int) string {
	switch p.Kind {
	case driver.Int:
		return "bigint"
	case driver.Timestamp, driver.UUID:
		return "text"
	default:
		return sent(p.Token[i])
	}
}

func (dialect) Many(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, rows []driver.Row) ([]driver.Found, bool, error) {
	text, args, err := statement(p, s, rows)
	if err != nil {
		return nil, false, err
	}
	on, taken, err := acquire(ctx, db)
	if err != nil {
		return nil, false, err
	}
	if taken != nil {
		defer taken.Release()
	}
	answer, err := on.Query(ctx, text, args...)
	if err != nil {
		return nil, false, marked(err)
	}
	defer answer.Close()
	found := make([]driver.Found, len(rows))
	ambiguous := false
	for answer.Next() {
		values, err := answer.Values()
		if err != nil {
			return nil, false, err
		}
		place, twice := values[0].(int64)-1, values[4].(bool)
		f := &found[place]
		ambiguous = ambiguous || twice
		same := values[2].(bool)
		f.Exists, f.Written = values[1].(bool), values[3].(bool)
		f.Held = same && !f.Written
		versions := values[5 : 5+(len(values)-5)/2]
		if f.Written {
			versions = values[5+len(versions):]
		}
		if f.Version, err = rawOf(p, versions); err != nil {
			return nil, false, err
		}
	}
	return found, ambiguous, marked(answer.Err())
}

// statement is that of several rows, with its arguments. Arrays are kept as texts; a column whose
// values make none is written in a text of its own.
func statement(p *driver.Plan, s *driver.Stmt, rows []driver.Row) (text string, args []any, err error) {
	var lists [][]any
	for i, r := range rows {
		line := expected([]any{r.Key}, p.Kind, r.Expected)
		if p.Kind == driver.UUID {
			line = append(line, driver.FormatUUID(r.Next.U))
		}
		if i == 0 {
			lists = make([][]any, len(line))
		}
		for j, v := range line {
			lists[j] = append(lists[j], v)
		}
	}
	for _, list := range lists {
		given, _ := array(list)
		args = append(args, given)
	}
	single, some := make([]bool, len(s.Columns)), false
	for j, c := range s.Columns {
		list := make([]any, len(rows))
		for i, r := range rows {
			list[i] = r.Set[s.Names[j]]
		}
		given, ok := array(list)
		if _, texts := given.([]*string); c.List || !ok || c.Own && !texts {
			single[j], some = true, true
			args = append(args, list...)
			continue
		}
		args = append(args, given)
	}
	if len(args) > maxParams {
		return "", nil, attempt.Invalid("changes", "they take %d parameters, more than %d: give some to another call", len(args), maxParams)
	}
	if !some {
		return s.Text, args, nil
	}
	return many(p, s.Op, s.Columns, single, len(rows)), args, nil
}

// maxParams is how many a statement takes.
const maxParams = 65_535
