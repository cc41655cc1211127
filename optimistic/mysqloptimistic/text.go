package mysqloptimistic

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Times travel as microseconds since 1970, and as texts: so they depend on no time zone, and on no
// setting of the driver's.
const (
	epoch  = "TIMESTAMP'1970-01-01 00:00:00'"
	micros = "TIMESTAMPDIFF(MICROSECOND, " + epoch + ", %[1]s)"
	clock  = "TIMESTAMPDIFF(MICROSECOND, " + epoch + ", UTC_TIMESTAMP(6))"
)

// read are the expressions that a version is read by.
func read(p *driver.Plan) []string {
	exprs := make([]string, len(p.Token))
	for i, c := range p.Token {
		column := quoted(c.Name)
		switch {
		case p.Kind == driver.Int, p.Kind == driver.UUID, c.Class == driver.Bytes:
			exprs[i] = column
		case c.Class == driver.DateTime && p.Kind == driver.Columns: // 0000-00-00 is no time, and not NULL either
			exprs[i] = fmt.Sprintf("COALESCE(CAST("+micros+" AS CHAR), CAST(%[1]s AS CHAR))", column)
		case c.Class == driver.DateTime:
			exprs[i] = fmt.Sprintf(micros, column)
		default:
			exprs[i] = "CAST(" + column + " AS CHAR)"
		}
	}
	return exprs
}

// matches is the condition that a row has the version of the next parameters.
func matches(p *driver.Plan) string {
	conditions := make([]string, len(p.Token))
	for i, c := range p.Token {
		column := quoted(c.Name)
		switch {
		case p.Kind == driver.Int:
			conditions[i] = column + " = ?"
		case p.Kind == driver.Timestamp:
			conditions[i] = column + " = CAST(? AS DATETIME(6))"
		case p.Kind == driver.UUID && c.Class == driver.Text:
			conditions[i] = "LOWER(" + column + ") = ?"
		case p.Kind == driver.UUID:
			conditions[i] = column + " = ?"
		case c.Class == driver.Text: // byte by byte: a collation takes different texts for the same
			conditions[i] = fmt.Sprintf("CAST(CONVERT(%s USING utf8mb4) AS BINARY) <=> CAST(CONVERT(? USING utf8mb4) AS BINARY)", column)
		default:
			conditions[i] = fmt.Sprintf("%s <=> %s", column, cast(c))
		}
	}
	return strings.Join(conditions, " AND ")
}

// cast is a parameter of a column's class: without it the server may compare as floats.
func cast(c driver.Column) string {
	switch c.Class {
	case driver.Integer, driver.Decimal:
		return "CAST(? AS DECIMAL(65,30))"
	case driver.Date, driver.DateTime: // a DATE may have become a DATETIME, so nothing is cut to a day
		return "CAST(? AS DATETIME(6))"
	}
	return "?"
}

// bump is what a row's version becomes. Of an Int the server makes it, others are parameters.
func bump(p *driver.Plan) string {
	if p.Kind == driver.Int {
		return quoted(p.Token[0].Name) + " + 1"
	}
	return "?"
}

func (dialect) Text(p *driver.Plan, op driver.Op, set []driver.Column) string {
	key := quoted(p.Key)
	where := key + " = ?"
	switch {
	case op == driver.Many || op == driver.ManyAll:
		return "" // it depends on the number of rows
	case op == driver.Update || op == driver.Delete, op == driver.UpdateAny && (p.Kind == driver.Int || p.Kind == driver.Timestamp):
		where += " AND " + matches(p)
	}
	if op == driver.Delete || op == driver.DeleteAny {
		return fmt.Sprintf("DELETE FROM %s WHERE %s", p.From, where)
	}
	var names, values []string
	for _, c := range set {
		names, values = append(names, quoted(c.Name)), append(values, "?")
	}
	if p.Kind != driver.Columns {
		names = append(names, quoted(p.Token[0].Name))
	}
	if op == driver.Insert {
		switch p.Kind {
		case driver.Int:
			values = append(values, strconv.FormatInt(p.First, 10))
		case driver.Timestamp, driver.UUID:
			values = append(values, "?")
		}
		return fmt.Sprintf("INSERT INTO %s (%s, %s) VALUES (?, %s)", p.From, key, strings.Join(names, ", "), strings.Join(values, ", "))
	}
	if p.Kind != driver.Columns {
		values = append(values, bump(p))
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE %s", p.From, assigned(names, values), where)
}

func assigned(names, values []string) string {
	parts := make([]string, len(names))
	for i := range names {
		parts[i] = names[i] + " = " + values[i]
	}
	return strings.Join(parts, ", ")
}
