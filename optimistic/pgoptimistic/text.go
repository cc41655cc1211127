package pgoptimistic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// The texts do not depend on how pgx sends them: if it does not ask the server for the types of
// parameters, those of versions by a cast.

// epoch is a server's time: in microseconds since 1970, whatever the session's time
// zone.
const epoch = "(extract(epoch FROM t.%s) * 1000000::numeric)::bigint"

// in names an operator of a column's type in the schema of the type. A search along the search_path
// could choose an operator that another role has made for the host's own types.
func in(c driver.Column, operator string) string {
	return fmt.Sprintf("OPERATOR(%s.%s)", c.Home, operator)
}

// hasKey is the condition that a row has a key.
func hasKey(p *driver.Plan, key string) string {
	return fmt.Sprintf("t.%s %s %s", quoted(p.Key), in(p.KeyColumn, "="), key)
}

// read are the expressions that a version is read by.
func read(p *driver.Plan) []string {
	switch c := quoted(p.Token[0].Name); p.Kind {
	case driver.Int:
		return []string{"t." + c + "::bigint"}
	case driver.Timestamp:
		return []string{fmt.Sprintf(epoch, c)}
	case driver.UUID:
		return []string{"t." + c + "::text"}
	}
	exprs := make([]string, len(p.Token))
	for i, c := range p.Token {
		exprs[i] = "t." + quoted(c.Name)
	}
	return exprs
}

// now is the time that the server's clock shows, as a column has it.
func now(c driver.Column) string {
	if c.Class == driver.DateTime {
		return "(clock_timestamp() AT TIME ZONE 'UTC')"
	}
	return "clock_timestamp()"
}

// matches is the condition that a row has the version of arg, which is $2 or the column of a list.
func matches(p *driver.Plan, arg func(i int) string) string {
	conditions := make([]string, len(p.Token))
	for i, c := range p.Token {
		column, given := "t."+quoted(c.Name), arg(i)
		switch {
		case p.Kind == driver.Int:
			conditions[i] = fmt.Sprintf("%s %s %s::bigint", column, in(c, "="), given)
		case p.Kind == driver.Timestamp:
			conditions[i] = fmt.Sprintf("%s %s %s::text::%s", column, in(c, "="), given, c.Type)
		case p.Kind == driver.UUID:
			conditions[i] = fmt.Sprintf("%s %s %s::text::uuid", column, in(c, "="), given)
		case c.Padded:
			conditions[i] = fmt.Sprintf(`%s::text COLLATE "C" IS NOT DISTINCT FROM %s::bpchar::text`, column, given)
		case c.Class == driver.Text: // byte by byte: a collation may take different texts for the same
			conditions[i] = fmt.Sprintf(`%s::text COLLATE "C" IS NOT DISTINCT FROM %s::text`, column, given)
		default:
			given = fmt.Sprintf("%s::%s", given, c.Type)
			conditions[i] = fmt.Sprintf("(%[1]s %[3]s %[2]s OR %[1]s IS NULL AND %[2]s IS NULL)", column, given, in(c, "="))
		}
	}
	return strings.Join(conditions, " AND ")
}

// bump is what a row's version becomes; a UUID is the given one. Empty: there is none.
func bump(p *driver.Plan, given string) string {
	switch c := p.Token[0]; p.Kind {
	case driver.Int:
		return fmt.Sprintf("t.%s %s 1", quoted(c.Name), in(c, "+"))
	case driver.Timestamp:
		return fmt.Sprintf("GREATEST(%s, t.%s %s interval '1 microsecond')", now(c), quoted(c.Name), in(c, "+"))
	case driver.UUID:
		return given + "::text::uuid"
	}
	return ""
}

// first is the version of a row that is inserted.
func first(p *driver.Plan, given string) string {
	switch p.Kind {
	case driver.Int:
		return strconv.FormatInt(p.First, 10)
	case driver.Timestamp:
		return now(p.Token[0])
	default:
		return bump(p, given)
	}
}

func (dialect) Text(p *driver.Plan, op driver.Op, set []driver.Column) string {
	if op == driver.Many || op == driver.ManyAll {
		return many(p, op, set, nil, 0)
	}
	n := 1 // parameters
	param := func() string { n++; return "$" + strconv.Itoa(n) }
	where, kept := hasKey(p, "$1"), ""
	switch {
	case op == driver.Update || op == driver.Delete:
		kept = matches(p, func(int) string { return param() })
		where += " AND " + kept
	case op == driver.UpdateAny && p.Kind == driver.Int:
		where += fmt.Sprintf(" AND t.%s %s %d", quoted(p.Token[0].Name), in(p.Token[0], ">="), p.First) // what is lower is no version
	}
	guard := unaltered(p, set)
	where += " AND " + guard
	if op == driver.Delete || op == driver.DeleteAny {
		return fmt.Sprintf("DELETE FROM %s AS t WHERE %s", p.From, where)
	}
	given := ""
	if p.Kind == driver.UUID {
		given = param()
	}
	names, values := []string{}, []string{}
	for _, c := range set {
		names, values = append(names, quoted(c.Name)), append(values, param())
	}
	if p.Kind != driver.Columns {
		names = append(names, quoted(p.Token[0].Name))
		if op == driver.Insert {
			values = append(values, first(p, given))
		} else {
			values = append(values, bump(p, given))
		}
	}
	back := read(p)
	if op == driver.Insert {
		back[0] = fmt.Sprintf("CASE WHEN %s THEN CASE WHEN %s THEN %s ELSE %s END END",
			guard, hasKey(p, "$1"), back[0], suppressed("0", p))
		return fmt.Sprintf("INSERT INTO %s AS t (%s, %s) VALUES ($1, %s) ON CONFLICT (%s) DO NOTHING RETURNING %s",
			p.From, quoted(p.Key), strings.Join(names, ", "), strings.Join(values, ", "), quoted(p.Key), strings.Join(back, ", "))
	}
	if op == driver.Update {
		back = written(p, back, kept, "0")
	}
	return fmt.Sprintf("UPDATE %s AS t SET %s WHERE %s RETURNING %s", p.From, assigned(names, values), where, strings.Join(back, ", "))
}

func assigned(names, values []string) string {
	parts := make([]string, len(names))
	for i := range names {
		parts[i] = names[i] + " = " + values[i]
	}
	return strings.Join(parts, ", ")
}

// alteredMark is in the error of a statement whose columns have other types than they had for
// Inspect.
const alteredMark = "dblock: a column has another type than before"

// unaltered is a condition of every statement: the key, the version and the columns to set have the
// types that Inspect found. If not, the server fails with alteredMark before anything is written.
//
// A prepared statement keeps the types of its parameters when a column gets another type, and so
// does each cast in a text: both would cut a value to the old type first. The types are those of a
// row that is NULL. So the condition holds for no row in particular, the server evaluates it once,
// and it takes no privilege on the columns. The text names the types, so a text for other types is
// another statement for pgx.
func unaltered(p *driver.Plan, set []driver.Column) string {
	columns := slices.Concat([]driver.Column{p.KeyColumn}, p.Token, set)
	same := make([]string, len(columns))
	for i, c := range columns {
		same[i] = fmt.Sprintf("pg_catalog.pg_typeof((NULL::%s).%s)::oid = %s::regtype::oid", p.Rows, quoted(c.Name), literal(c.Declared))
	}
	// concat is stable, so the planner does not evaluate the cast in advance.
	return fmt.Sprintf("CASE WHEN %s THEN true ELSE pg_catalog.concat('%s')::bool END", strings.Join(same, " AND "), alteredMark)
}

func literal(text string) string {
	return "E'" + strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(text) + "'"
}

// suppressedMark is in the error of a statement that a trigger kept from writing a row. The place
// of the row follows, and a full stop.
const suppressedMark = "dblock: a trigger suppressed the write of row "

// suppressedError is a truth value that fails with suppressedMark. The statement writes nothing
// then.
func suppressedError(place string) string {
	return fmt.Sprintf("pg_catalog.concat('%s', %s, '.')::bool", suppressedMark, place)
}

// suppressed is raised of the type that a version is read in.
func suppressed(place string, p *driver.Plan) string {
	typ := "text"
	switch p.Kind {
	case driver.Int, driver.Timestamp:
		typ = "bigint"
	case driver.Columns:
		typ = p.Token[0].Declared
	}
	return suppressedError(place) + "::text::" + typ
}

// written are the expressions that a version is read by of a row that was written just now. If it
// has the version that it had, a trigger has put the old row in the place of the new one.
func written(p *driver.Plan, read []string, kept, place string) []string {
	if p.Kind == driver.Columns { // to set what is there already changes none
		return read
	}
	return []string{fmt.Sprintf("CASE WHEN %s THEN %s ELSE %s END", kept, suppressed(place, p), read[0])}
}
