package mysqloptimistic

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Many locks and reads the rows, and then writes those that are at the versions expected: so it
// needs a transaction.
func (dialect) Many(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, rows []driver.Row) ([]driver.Found, bool, error) {
	b := batch{p: p, s: s, rows: rows}
	on, err := poolOf(ctx, db)
	if err != nil {
		return nil, false, err
	}
	for _, r := range rows {
		if err := fits(p, r); err != nil {
			return nil, false, err
		}
	}
	run := func(db DB) error { return b.run(ctx, db) }
	if on.locksFirst(ctx) {
		err = on.underLock(ctx, db.(*sql.DB), p, rows, run)
		return b.found, b.ambiguous, err
	}
	if _, isTx := db.(interface{ Commit() error }); on == nil && !isTx {
		return nil, false, attempt.Invalid("db", "%T is neither a *sql.DB nor a transaction: UpdateMany takes two statements here, and needs one", db)
	}
	if on == nil {
		err = run(db)
	} else {
		err = underRowLock(ctx, db, run)
	}
	on.left(ctx, err)
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
	now, err := b.lockRows(ctx, db)
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
		r := b.rows[i] // it is locked, so that no other session gives it another version
		if b.p.Kind == driver.Timestamp {
			r.Next = later(now, r.Expected)
		}
		b.found[i] = driver.Found{Exists: true, Written: true, Version: nextOf(b.p, b.s, r)}
	}
	parts := [][]int{places}
	if !b.writeTogether(places) {
		parts = slices.Collect(slices.Chunk(places, 1))
	}
	for _, part := range parts {
		text, args := b.update(part)
		if err := checkFew(args); err != nil {
			return err
		}
		result, err := mysql.Exec(ctx, db, text, args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n < int64(len(part)) && b.p.Kind != driver.Columns { // these may become what they are
			err = b.suppressed(ctx, db, part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// suppressed finds the rows that were not written, as they have their old versions.
func (b *batch) suppressed(ctx context.Context, db DB, places []int) error {
	now := batch{p: b.p, s: b.s, rows: b.rows, found: make([]driver.Found, len(b.rows))}
	if _, err := now.lockRows(ctx, db); err != nil {
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

// inOne is how many keys stand in one IN: of a thousand MariaDB would make a table of its own, and
// lose their order.
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

// lockRows locks the rows in the order of their keys, and reads which of those asked for each is,
// the first and the last, whether it is at the version expected, what the server's clock shows, and
// the version. Texts are flat: the server's stack is small.
func (b *batch) lockRows(ctx context.Context, db DB) (now int64, err error) {
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
	if err := checkFew(args); err != nil {
		return 0, err
	}
	answer, err := mysql.Query(ctx, db, text, args...)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Close() }()
	for answer.Next() {
		var place, last, same int64
		version, err := scan(answer, b.p, &place, &last, &same, &now)
		if err != nil {
			return 0, err
		}
		b.found[place] = driver.Found{Exists: true, Held: same == 1, Version: version}
		b.ambiguous = b.ambiguous || place != last
	}
	return now, errors.Join(answer.Err(), answer.Close())
}

// writeTogether reports that one statement can write the rows at these places. A CASE of values of
// several Go types has one type, and would convert the others to it. The server takes no statement
// longer than its max_allowed_packet.
func (b *batch) writeTogether(places []int) bool {
	total, kinds := fixedText, make([]string, len(b.s.Names))
	for _, i := range places {
		total += b.weight(i)
		for j, name := range b.s.Names {
			kind := kindOf(b.rows[i].Set[name])
			if kind != "" && kinds[j] != "" && kind != kinds[j] {
				return false
			}
			kinds[j] = cmp.Or(kind, kinds[j])
		}
	}
	return b.p.MaxText == 0 || total <= b.p.MaxText
}

// update is the statement that writes the rows at these places, all of them with a value of its own
// for each column, which the server assigns as it does that of Update.
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
			if kindOf(v) == "" {
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

// typed is a parameter of a CASE that has the type of its value. MySQL gives one without a type
// that of the column, and converts the value to that as in a comparison, and not as in an
// assignment.
func typed(kind string) string {
	switch kind {
	case "int64", "bool":
		return "CAST(? AS SIGNED)"
	case unsigned:
		return "CAST(? AS UNSIGNED)"
	case "string", "[]uint8", "time.Time":
		return "CONCAT(?)"
	}
	return "?"
}

// maxParams is how many a statement takes.
const maxParams = 65_535

func checkFew(args []any) error {
	if len(args) > maxParams {
		return attempt.Invalid("changes", "they take %d parameters, more than %d: give some to another call", len(args), maxParams)
	}
	return nil
}

const (
	fixedText = 8 << 10 // more than a statement has without its rows
	termText  = 64      // more than the text around a parameter, and a number
)

// fits refuses a row that no statement can carry. The server would close the connection before it
// has read all of the statement, so the client would see a broken connection.
func fits(p *driver.Plan, r driver.Row) error {
	total := 0
	for _, value := range r.Set {
		total += lengthOf(value)
	}
	if p.MaxText == 0 || total <= p.MaxText {
		return nil
	}
	return attempt.Invalid("Set", "the row %v of %s has %d bytes, more than the server's max_allowed_packet of %d; nothing was written",
		r.Key, p.Table, total, p.MaxText)
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
