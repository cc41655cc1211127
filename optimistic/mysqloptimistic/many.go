package mysqloptimistic

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Many locks and reads the rows, and then writes those that are at the versions expected: so it needs a
// transaction. It writes rows whose values are of different Go types by several statements.
func (dialect) Many(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, rows []driver.Row) ([]driver.Found, bool, error) {
	b := batch{p: p, s: s, rows: rows}
	if err := checkPool(ctx, db); err != nil {
		return nil, false, err
	}
	for _, r := range rows {
		if err := fits(p, r.Key, r.Set); err != nil {
			return nil, false, err
		}
	}
	if pool, ok := db.(*sql.DB); ok {
		err := mysqllock.RunTx(ctx, pool, mysqllock.TxOptions{}, func(tx *sql.Tx) error { return b.run(ctx, tx) })
		return b.found, b.ambiguous, err
	}
	if _, ok := db.(interface{ Commit() error }); !ok {
		return nil, false, refused("db", "%T is neither a *sql.DB nor a transaction: UpdateMany takes two statements here, and needs one", db)
	}
	err := b.run(ctx, db)
	return b.found, b.ambiguous, err
}

// batch is a write of several rows.
type batch struct {
	p         *driver.Plan
	s         *driver.Stmt
	rows      []driver.Row
	found     []driver.Found
	ambiguous bool
}

func (b *batch) run(ctx context.Context, db DB) error {
	b.found, b.ambiguous = make([]driver.Found, len(b.rows)), false
	now, err := b.look(ctx, db)
	if err != nil || b.ambiguous {
		return err
	}
	var places []int // of the rows to write
	for i, f := range b.found {
		if f.Held {
			places = append(places, i)
		}
	}
	if len(places) == 0 || b.s.Op == driver.ManyAll && len(places) < len(b.rows) {
		return nil
	}
	for _, i := range places {
		f := &b.found[i]
		f.Held, f.Written = false, true
		f.Version = b.next(i, now)
	}
	for _, alike := range b.byKind(places) {
		for _, some := range b.portions(alike) {
			text, args := b.update(some)
			if err := few(args); err != nil {
				return err
			}
			result, err := mysql.Exec(ctx, db, text, args...)
			if err != nil {
				return err
			}
			n, err := result.RowsAffected()
			if err == nil && n < int64(len(some)) && b.p.Kind != driver.Columns { // these may become what they are
				err = b.suppressed(ctx, db, some)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// suppressed finds the rows that were not written, as they have their old versions.
func (b *batch) suppressed(ctx context.Context, db DB, places []int) error {
	now := batch{p: b.p, s: b.s, rows: b.rows, found: make([]driver.Found, len(b.rows))}
	if _, err := now.look(ctx, db); err != nil {
		return err
	}
	for _, i := range places {
		switch {
		case !now.found[i].Held:
		case b.s.Op == driver.ManyAll:
			return &driver.SuppressedError{Place: i, Err: errors.New("the server wrote fewer rows than there are")}
		default:
			b.found[i] = now.found[i]
		}
	}
	return nil
}

// next is the version that a row gets. It is locked, so that nobody else gives it one.
func (b *batch) next(i int, now int64) driver.Raw {
	r := b.rows[i]
	switch b.p.Kind {
	case driver.Int:
		return driver.Raw{N: r.Expected.N + 1}
	case driver.Timestamp:
		return later(now, r.Expected)
	case driver.UUID:
		return r.Next
	default:
		return driver.Raw{Values: became(b.p, b.s, r.Expected, r.Set)}
	}
}

// inOne is how many keys stand in one IN: of a thousand MariaDB would make a table of its own, and lose their order.
const inOne = 500

// among is the condition that the key is one of n parameters.
func among(key string, n int) string {
	var b strings.Builder
	for i := range n {
		switch {
		case i == 0:
			fmt.Fprintf(&b, "(%s IN (?", key)
		case i%inOne == 0:
			fmt.Fprintf(&b, ") OR %s IN (?", key)
		default:
			b.WriteString(", ?")
		}
	}
	return b.String() + "))"
}

// look locks the rows in the order of their keys, and reads which of those asked for each is, the first and the last, whether it
// is at the version expected, what the server's clock shows, and the version. Texts are flat: the server's stack is small.
func (b *batch) look(ctx context.Context, db DB) (now int64, err error) {
	key, match := quoted(b.p.Key), matches(b.p)
	n := len(b.rows)
	var first, last, same strings.Builder
	keys, reversed, versioned := make([]any, n), make([]any, n), []any{}
	for i, r := range b.rows {
		fmt.Fprintf(&first, " WHEN ? THEN %d", i)
		fmt.Fprintf(&last, " WHEN ? THEN %d", n-1-i)
		fmt.Fprintf(&same, " WHEN ? THEN %s", match)
		keys[i], reversed[n-1-i] = r.Key, r.Key
		versioned = expected(append(versioned, r.Key), b.p, r.Expected)
	}
	text := fmt.Sprintf("SELECT CASE %[1]s%[2]s END, CASE %[1]s%[3]s END, COALESCE(CASE %[1]s%[4]s END, 0), %[5]s, %[6]s "+
		"FROM %[7]s FORCE INDEX (%[8]s) WHERE %[9]s ORDER BY %[1]s LIMIT %[10]s FOR UPDATE",
		key, first.String(), last.String(), same.String(), clock, strings.Join(read(b.p), ", "), b.p.From, quoted(b.p.Index), among(key, n),
		mysql.AllRows)
	args := slices.Concat(keys, reversed, versioned, keys)
	if err := few(args); err != nil {
		return 0, err
	}
	answer, err := mysql.Query(ctx, db, text, args...)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Close() }()
	for answer.Next() {
		var place, last, same int64
		v := versions(b.p)
		if err := answer.Scan(append([]any{&place, &last, &same, &now}, v.places...)...); err != nil {
			return 0, err
		}
		f := &b.found[place]
		f.Exists, f.Held = true, same == 1
		b.ambiguous = b.ambiguous || place != last
		if f.Version, f.Void, err = v.raw(b.p); err != nil {
			return 0, err
		}
	}
	return now, errors.Join(answer.Err(), answer.Close())
}

// byKind splits the places of rows so that in each part a column has values of one Go type, NULL apart. A
// CASE of several types has one type, and would convert the others to it.
func (b *batch) byKind(places []int) (parts [][]int) {
	var kinds [][]kind // of each part, by column
	for _, i := range places {
		row := make([]kind, len(b.s.Names))
		for j, name := range b.s.Names {
			row[j] = kindOf(b.rows[i].Set[name])
		}
		k := slices.IndexFunc(kinds, func(part []kind) bool { return merge(part, row) })
		if k < 0 {
			k = len(kinds)
			kinds, parts = append(kinds, row), append(parts, nil)
		}
		parts[k] = append(parts[k], i)
	}
	return parts
}

// merge adds the kinds of a row to those of a part, unless two of them differ.
func merge(part, row []kind) bool {
	for j := range part {
		if part[j] != 0 && row[j] != 0 && part[j] != row[j] {
			return false
		}
	}
	for j := range part {
		part[j] = max(part[j], row[j])
	}
	return true
}

// update is the statement that writes the rows at these places, all of them with a value of its own for each
// column, which the server assigns as it does that of Update.
func (b *batch) update(places []int) (string, []any) {
	key := quoted(b.p.Key)
	var names, values []string
	var args []any
	each := func(c driver.Column, value func(i int) any) {
		var text strings.Builder
		fmt.Fprintf(&text, "CASE %s", key)
		null := " WHEN ? THEN NULL"
		if slices.ContainsFunc(places, func(i int) bool { return kindOf(value(i)) == unsigned }) {
			null = " WHEN ? THEN CAST(NULL AS UNSIGNED)" // beside a plain NULL MariaDB takes great numbers for negative ones
		}
		for _, i := range places {
			args = append(args, b.rows[i].Key)
			v := value(i)
			if kindOf(v) == 0 {
				text.WriteString(null)
				continue
			}
			text.WriteString(" WHEN ? THEN " + typed(kindOf(v)))
			args = append(args, v)
		}
		names, values = append(names, quoted(c.Name)), append(values, text.String()+" END")
	}
	for j, c := range b.s.Columns {
		each(c, func(i int) any { return b.rows[i].Set[b.s.Names[j]] })
	}
	switch c := b.p.Token[0]; b.p.Kind {
	case driver.Int:
		names, values = append(names, quoted(c.Name)), append(values, bump(b.p))
	case driver.Timestamp:
		each(c, func(i int) any { return instant(b.found[i].Version.N) })
	case driver.UUID:
		each(c, func(i int) any { return uuid(c, b.rows[i].Next.U) })
	}
	for _, i := range places {
		args = append(args, b.rows[i].Key)
	}
	return fmt.Sprintf("UPDATE %s FORCE INDEX (%s) SET %s WHERE %s", b.p.From, quoted(b.p.Index), assigned(names, values),
		among(key, len(places))), args
}

// typed is a parameter of a CASE that has the type of its value. MySQL gives one without a type that of the
// column, and converts the value to that as in a comparison, and not as in an assignment.
func typed(k kind) string {
	switch k {
	case signed, boolean:
		return "CAST(? AS SIGNED)"
	case unsigned:
		return "CAST(? AS UNSIGNED)"
	case text, raw, moment:
		return "CONCAT(?)"
	}
	return "?"
}

// maxParams is how many a statement takes.
const maxParams = 65_535

func few(args []any) error {
	if len(args) > maxParams {
		return refused("changes", "they take %d parameters, more than %d: give some to another call", len(args), maxParams)
	}
	return nil
}

const (
	fixedText = 8 << 10 // more than a statement has without its rows
	termText  = 64      // more than the text around a parameter, and a number
)

// fits refuses a row that no statement can carry. The server would close the connection before it has read all of the statement, so
// the client would see a broken connection.
func fits(p *driver.Plan, key any, set map[string]any) error {
	total := 0
	for _, value := range set {
		total += lengthOf(value)
	}
	if p.Most == 0 || total <= p.Most {
		return nil
	}
	return refused("Set", "the row %v of %s has %d bytes, more than the server's max_allowed_packet of %d; nothing was written",
		key, p.Table, total, p.Most)
}

// portions cuts the places of rows into those of statements that the server takes. A row that may be too long has a statement of its
// own, as it has in Update.
func (b *batch) portions(places []int) (parts [][]int) {
	bytes := 0
	for i, place := range places {
		row := b.weight(place)
		if i == 0 || b.p.Most > 0 && bytes+row > b.p.Most {
			parts, bytes = append(parts, nil), fixedText
		}
		last := len(parts) - 1
		parts[last] = append(parts[last], place)
		bytes += row
	}
	return parts
}

// weight is at least what a row adds to the statement that writes it, in any protocol.
func (b *batch) weight(place int) int {
	r := b.rows[place]
	key := weightOf(r.Key)
	total := key
	for j, name := range b.s.Names {
		total += key + weightOf(r.Set[name]) + len(b.s.Columns[j].Name)
	}
	if b.p.Kind == driver.Timestamp || b.p.Kind == driver.UUID {
		total += key + termText
	}
	return total
}

// weightOf doubles the bytes of a value: the driver may escape each.
func weightOf(value any) int { return termText + 2*lengthOf(value) }

// lengthOf is how many bytes a value has; 0 for what is not a text.
func lengthOf(value any) int {
	plain, err := sqldriver.DefaultParameterConverter.ConvertValue(value)
	if err != nil {
		return 0
	}
	switch v := plain.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	}
	return 0
}
