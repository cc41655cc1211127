package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dblock-go/dblock/internal/rowlock"
)

// ScanError says that a statement would have locked rows that it does not return, up to the whole table, for want of an
// index. Nothing was locked. RowLock.Scan has it done all the same.
//
// LockRow and LockRows look for an index that begins with the column, and Claim reads what EXPLAIN says: once for each text
// of a statement, and kind of key, that is allowed, in the life of the process, of the last few hundred. A process that
// works on several databases, in which one text means tables of different indexes, has the verdict of the first.
type ScanError struct {
	Statement string // what would have been run, without its lock
	Reason    string // what the server would do
	Index     string // which index to make
}

func (e *ScanError) Error() string {
	return fmt.Sprintf("dblock: %s would lock rows that it does not return: %s; make %s, or set RowLock.Scan", e.Statement, e.Reason, e.Index)
}

// verdict is what the cache goes by: what a statement reads, and with which kind of key.
func (l locking[K]) verdict(key K) string { return verdictOf(l.from, l.where, key) }

func verdictOf(from, where string, key any) string {
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s = ? (%T)", where, from, where, key)
}

// indexFor is the name, quoted, of an index that begins with a column, the primary key before others.
func indexFor(ctx context.Context, tx *sql.Tx, from, where, column string, key any) (string, error) {
	verdict := verdictOf(from, where, key)
	if index, known := verdicts.get(verdict); known {
		return index, nil
	}
	statement := fmt.Sprintf("SELECT %s FROM %s WHERE %s = ?", where, from, where)
	answer, err := tx.QueryContext(ctx, "SHOW INDEX FROM "+from)
	indexes, err := collect(answer, err, asMap)
	if err != nil {
		return "", err
	}
	var names []string
	for _, i := range indexes {
		hidden := i["Visible"] == "NO" || i["Ignored"] == "YES"
		if i["Seq_in_index"] == "1" && strings.EqualFold(i["Column_name"], column) && i["Index_type"] == "BTREE" && !hidden {
			names = append(names, i["Key_name"])
		}
	}
	if len(names) == 0 {
		if _, err := planOf(ctx, tx, statement, []any{key}); err != nil { // there may be no such column
			return "", err
		}
		return "", &ScanError{statement, "no index begins with the column", fmt.Sprintf("an index: CREATE INDEX … ON %s (%s)", from, where)}
	}
	// All who lock these rows have to read the same index, or they would lock in different orders.
	index := slices.MinFunc(names, func(a, b string) int {
		if primary := strings.EqualFold(a, "PRIMARY"); primary != strings.EqualFold(b, "PRIMARY") {
			if primary {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	if index, err = rowlock.Name("index", index, "`"); err != nil {
		return "", err
	}
	// Whether the values are of a kind by which the index can be searched.
	plan, err := planOf(ctx, tx, fmt.Sprintf("SELECT %s FROM %s FORCE INDEX (%s) WHERE %s = ?", where, from, index, where), []any{key})
	if err != nil {
		return "", err
	}
	for _, step := range plan {
		if step.reads() {
			reason := fmt.Sprintf("the index %s can't be searched for a %T: the column has another type, or another collation", index, key)
			return "", &ScanError{statement, reason, "the value one of the column's type"}
		}
	}
	verdicts.put(verdict, index)
	return index, nil
}

// explain refuses a query that reads more rows than it returns.
func explain(ctx context.Context, tx *sql.Tx, query string, n int, args []any) error {
	if _, known := verdicts.get(query); known {
		return nil
	}
	plan, err := planOf(ctx, tx, rowlock.Claim(query, n, ""), args)
	if err != nil {
		return err
	}
	const index = "an index of the columns of its WHERE, followed by those of its ORDER BY"
	seen := true
	for _, step := range plan {
		switch {
		case strings.Contains(step.extra, "Using filesort") || strings.Contains(step.extra, "Using temporary"):
			return &ScanError{query, "all that fits is locked before it is sorted", index}
		case step.reads() && step.usable == "" && strings.Contains(step.extra, "Using where"):
			return &ScanError{query, "no index serves its WHERE, and the table is read from its begin", index}
		}
		seen = seen && step.access != ""
	}
	if seen { // and not only that there is no such row today
		verdicts.put(query, "")
	}
	return nil
}

// planStep is a line of EXPLAIN.
type planStep struct{ access, usable, extra string }

// reads tells that the whole table is read, or the whole of an index.
func (s planStep) reads() bool { return s.access == "ALL" || s.access == "index" }

// planOf explains a statement without its lock: the server may read a row by its key to make a plan, and would lock it.
func planOf(ctx context.Context, tx *sql.Tx, statement string, args []any) ([]planStep, error) {
	answer, err := tx.QueryContext(ctx, "EXPLAIN FORMAT=TRADITIONAL "+statement, args...)
	lines, err := collect(answer, err, asMap)
	steps := make([]planStep, len(lines))
	for i, line := range lines {
		steps[i] = planStep{line["type"], line["possible_keys"], line["Extra"]}
	}
	return steps, err
}

// asMap reads a row by the names of its columns, of which servers have different ones; NULL is empty.
func asMap(rows *sql.Rows) (map[string]string, error) {
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values := make([]sql.NullString, len(names))
	places := make([]any, len(names))
	for i := range values {
		places[i] = &values[i]
	}
	if err := rows.Scan(places...); err != nil {
		return nil, err
	}
	row := make(map[string]string, len(names))
	for i, name := range names {
		row[name] = values[i].String
	}
	return row, nil
}

// maxVerdicts bounds the cache. Who makes up texts all the time pays for an EXPLAIN now and then.
const maxVerdicts = 512

// verdicts are the statements that are allowed, and by which index. A refusal is not kept: the index may be made.
var verdicts = cache{allowed: map[string]string{}}

type cache struct {
	mu      sync.Mutex
	allowed map[string]string
}

func (c *cache) get(text string) (index string, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	index, known = c.allowed[text]
	return index, known
}

func (c *cache) put(text, index string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for old := range c.allowed {
		if len(c.allowed) < maxVerdicts {
			break
		}
		delete(c.allowed, old) // any: a map's order is random enough
	}
	c.allowed[text] = index
}

func (c *cache) forget(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.allowed, text)
}
