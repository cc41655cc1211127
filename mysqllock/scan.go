package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/rowlock"
)

// ScanError says that a statement would have locked rows that it does not return, up to the whole
// table, for want of an index. Nothing was locked. RowLock.Scan has it done all the same.
//
// LockRow and LockRows look at the table and for an index that begins with the column. This is done
// once for each table and column, and kind of key, that is allowed: the process keeps the last few
// hundred. If one name means different tables in several databases, it keeps the verdict of the
// first. Each Claim reads what EXPLAIN says of its query and arguments, and looks at the table.
type ScanError struct {
	Statement string // what would have been run, without its lock
	Reason    string // what the server would do
	Index     string // which index to make
}

func (e *ScanError) Error() string {
	return fmt.Sprintf("dblock: %s would lock rows that it does not return: %s; make %s, or set RowLock.Scan", e.Statement, e.Reason, e.Index)
}

// access is how the rows of a table are locked.
type access struct {
	index       string // by which, in quotes; empty: by any
	unindexed   string // a column that is not in that index, in quotes; empty: there is none
	partitioned bool
	named       bool // a claim names its indexes itself
}

func verdictOf(from, where string, key any) string {
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s = ? (%T)", where, from, where, key)
}

// accessTo finds an index that begins with a column, the primary key before others. With scan any
// will do.
func accessTo(ctx context.Context, tx *sql.Tx, from, where, column string, key any, scan bool) (access, error) {
	verdict := verdictOf(from, where, key)
	if scan {
		verdict = "any index of " + from
	}
	if a, known := verdicts.get(verdict); known {
		return a, nil
	}
	table, err := lockable(ctx, tx, from)
	if err != nil {
		return access{}, err
	}
	a := access{partitioned: table.Partitioned}
	if !scan {
		if err := a.find(ctx, tx, table, from, where, column, key); err != nil {
			return access{}, err
		}
	}
	verdicts.put(verdict, a)
	return a, nil
}

// lockable refuses a table whose rows can't be locked.
func lockable(ctx context.Context, tx *sql.Tx, from string) (mysql.Table, error) {
	table, err := mysql.InspectTable(ctx, tx, from)
	if err != nil {
		return table, err
	}
	if reason := table.RowLocks(from); reason != "" {
		return table, fmt.Errorf("%w: rows of %s can't be locked: it %s", dblock.ErrUnsupported, from, reason)
	}
	return table, nil
}

// find looks for the index, and makes sure that it can be searched for the key.
func (a *access) find(ctx context.Context, tx *sql.Tx, table mysql.Table, from, where, column string, key any) error {
	statement := fmt.Sprintf("SELECT %s FROM %s WHERE %s = ?", where, from, where)
	lines, err := mysql.ShowOf(ctx, tx, "SHOW INDEX FROM "+from)
	if err != nil {
		return err
	}
	var names []string
	for _, i := range lines {
		hidden := i["Visible"] == "NO" || i["Ignored"] == "YES"
		if i["Seq_in_index"] == "1" && strings.EqualFold(i["Column_name"], column) && i["Index_type"] == "BTREE" && !hidden {
			names = append(names, i["Key_name"])
		}
	}
	if len(names) == 0 {
		if _, err := planOf(ctx, tx, "", statement, []any{key}); err != nil { // there may be no such column
			return err
		}
		return &ScanError{statement, "no index begins with the column", fmt.Sprintf("an index: CREATE INDEX … ON %s (%s)", from, where)}
	}
	// All statements that lock these rows have to read the same index, or they would lock in
	// different orders.
	name := slices.MinFunc(names, func(a, b string) int {
		if primary := isPrimary(a); primary != isPrimary(b) {
			if primary {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	if a.index, err = rowlock.Name("index", name, "`"); err != nil {
		return err
	}
	if a.unindexed, err = unindexedColumn(table, lines, name); err != nil {
		return err
	}
	// Whether the values are of a kind by which the index can be searched.
	plan, err := planOf(ctx, tx, "", fmt.Sprintf("SELECT %s FROM %s FORCE INDEX (%s) WHERE %s = ?", where, from, a.index, where), []any{key})
	if err != nil {
		return err
	}
	for _, step := range plan {
		if step.reads() {
			reason := fmt.Sprintf("the index %s can't be searched for a %T: the column has another type, or another collation", a.index, key)
			return &ScanError{statement, reason, "the value one of the column's type"}
		}
	}
	return nil
}

func isPrimary(index string) bool { return strings.EqualFold(index, "PRIMARY") }

// unindexedColumn is a column that an index does not have. Every index has those of the primary
// key.
func unindexedColumn(table mysql.Table, lines []map[string]string, index string) (string, error) {
	for _, column := range table.Columns {
		if !slices.ContainsFunc(lines, func(i map[string]string) bool {
			return (i["Key_name"] == index || isPrimary(i["Key_name"])) && strings.EqualFold(i["Column_name"], column)
		}) {
			return rowlock.Name("column", column, "`")
		}
	}
	return "", nil
}

func claimKey(query string) string { return "claim: " + query }

// checkClaim refuses a query that makes other rows of those it reads. That depends on its text
// alone, of which it knows whether it names indexes.
func checkClaim(ctx context.Context, tx *sql.Tx, query string, args []any) (access, error) {
	if a, known := verdicts.get(claimKey(query)); known {
		return a, nil
	}
	if err := rowlock.MySQL.CheckQuery(query); err != nil {
		return access{}, err
	}
	if err := aggregatesNothing(ctx, tx, query, args); err != nil {
		return access{}, txError(ctx, claimed, err)
	}
	verdicts.put(claimKey(query), access{})
	return access{}, nil
}

// aggregatesNothing runs a query over no rows. It returns one if it aggregates them, by whatever
// function.
func aggregatesNothing(ctx context.Context, tx *sql.Tx, query string, args []any) error {
	const none = "\nJOIN (SELECT 1 AS dblock_none) AS dblock_none ON FALSE\n"
	fromEnd := rowlock.MySQL.FromEnd(query)
	lines, err := mysql.ShowOf(ctx, tx, rowlock.Claim(query[:fromEnd]+none+query[fromEnd:], 1, ""), args...)
	if err != nil || len(lines) == 0 {
		return err
	}
	return &dblock.InvalidError{Field: "query", Reason: "an aggregate makes other rows of those that would be locked"}
}

// These have the server read one index, in its order, and lock what fits at once. Else it would
// merge indexes, or read a range of one before the rows (MRR): then it waits for what others have
// locked. Or it would lock a range before it filters it, or the first row of each value of a column
// (skip scan). Each comment is one to the other server.
const (
	steadyMariaDB = "/*M! SET STATEMENT optimizer_switch = 'index_merge=off,mrr=off,rowid_filter=off' FOR */ "
	steadyMySQL   = "SET_VAR(optimizer_switch = 'index_merge=off,mrr=off,skip_scan=off') "
)

// steady adds the settings of MySQL to a query that begins with SELECT. A hint of its own goes on.
func steady(query string) string {
	selects, rest := rowlock.MySQL.CutSelect(query)
	if own := strings.TrimLeft(rest, " \t\r\n"); strings.HasPrefix(own, "/*+") {
		return selects + " /*+ " + steadyMySQL + own[len("/*+"):]
	}
	return selects + " /*+ " + steadyMySQL + "*/" + rest
}

// planClaim refuses a query on a table whose rows can't be locked, one that reads a spatial index,
// where the server waits, and unless it may scan, one that reads more rows than it returns. It
// returns the index to read. The arguments, and what the table has, decide which one the server
// chooses, and whether it sorts what it has locked: so each claim is planned. To explain takes a
// metadata lock: the table stays what it is until tx ends.
func planClaim(ctx context.Context, tx *sql.Tx, query string, n int, args []any, scan bool) (index string, err error) {
	plan, err := planOf(ctx, tx, steadyMariaDB, steady(rowlock.Claim(query, n, "")), args)
	if err != nil {
		return "", err
	}
	tables, _ := rowlock.MySQL.Tables(query)
	table, err := lockable(ctx, tx, tables[0]) // CheckQuery refuses others
	if err != nil {
		return "", err
	}
	for _, step := range plan {
		switch {
		case slices.Contains(table.Spatial, step.index):
			return "", &dblock.InvalidError{Field: "query", Reason: fmt.Sprintf(
				"the server reads the spatial index %[1]s, and waits there for what others have locked: add IGNORE INDEX (%[1]s)", step.index)}
		case scan:
		case step.sorts() && step.usable == "":
			return "", errSorts(query)
		case step.collects():
			return "", &ScanError{query, "what it reads of indexes is locked before the rows are read", "the query without its hint"}
		case strings.Contains(step.partitions, ","):
			return "", &ScanError{query, "it reads several partitions, and locks rows of each", "its WHERE name one partition"}
		case step.reads() && step.filters() && step.usable == "":
			return "", errReads(query)
		}
	}
	if scan || len(plan) == 0 {
		return "", nil
	}
	return plan[0].choose(ctx, tx, query, n, args)
}

// choose returns the index that a plan reads, or another one that serves both WHERE and ORDER BY.
// It chooses none if the plan reads none, as there is no such row today. The first step is that of
// the table: others are of sub-selects among the columns.
func (s planStep) choose(ctx context.Context, tx *sql.Tx, query string, n int, args []any) (index string, err error) {
	if !s.sorts() && !(s.reads() && s.filters()) {
		return indexName(s.index)
	}
	sorts, hinted := s.sorts(), false
	for name := range strings.SplitSeq(s.usable, ",") {
		if index, err = indexName(name); err != nil {
			return "", err
		}
		steps, err := planOf(ctx, tx, steadyMariaDB, steady(rowlock.Claim(forced(query, index), n, "")), args)
		switch {
		case mysql.ErrorNumber(err) == mysql.WrongUsage:
			hinted = true
		case mysql.ErrorNumber(err) == mysql.NoSuchIndex: // of the table: the plan begins with another one
		case err != nil:
			return "", err
		case len(steps) == 0:
		case steps[0].sorts():
			sorts = true
		case !steps[0].reads() && !steps[0].collects():
			return index, nil
		}
	}
	if sorts {
		return "", errSorts(query)
	}
	if s.keeps && hinted {
		return "", &ScanError{query, "USE INDEX lets the server read all of the table or of an index", "it FORCE INDEX"}
	}
	if s.keeps { // it can't search the indexes, for the type of an argument perhaps
		return "", errReads(query)
	}
	merges, err := mergesIndexes(ctx, tx, query, n, args)
	if err == nil && merges {
		err = errReads(query)
	}
	return "", err
}

func errSorts(query string) error {
	return &ScanError{query, "all that fits is locked before it is sorted", servingIndex}
}

func errReads(query string) error {
	return &ScanError{query, "no index serves its WHERE, and all of the table or of an index is read",
		servingIndex + ", or the arguments of the columns' types"}
}

func indexName(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	return rowlock.Name("index", name, "`")
}

// forced is a query that reads an index; empty: any.
func forced(query, index string) string {
	if index == "" {
		return query
	}
	at := rowlock.MySQL.FromEnd(query)
	return query[:at] + "\nFORCE INDEX (" + index + ")\n" + query[at:]
}

// mergesIndexes reports that only several indexes together would serve a query, as the parts of an
// OR do. Otherwise MySQL reads a small table rather than search it.
func mergesIndexes(ctx context.Context, tx *sql.Tx, query string, n int, args []any) (bool, error) {
	plan, err := planOf(ctx, tx, "", rowlock.Claim(query, n, ""), args)
	return slices.ContainsFunc(plan, func(step planStep) bool { return step.access == "index_merge" }), err
}

// planStep is a line of EXPLAIN.
type planStep struct {
	access, usable, index, partitions, extra string
	keeps                                    bool // locks on rows that WHERE refuses, at any level: the server is MariaDB
}

const servingIndex = "an index of the columns of its WHERE, followed by those of its ORDER BY"

// sorts reports that rows are read before they are put in their order.
func (s planStep) sorts() bool {
	return strings.Contains(s.extra, "Using filesort") || strings.Contains(s.extra, "Using temporary")
}

// reads reports that the whole table is read, or the whole of an index.
func (s planStep) reads() bool { return s.access == "ALL" || s.access == "index" }

// filters reports that the server reads rows that do not fit.
func (s planStep) filters() bool { return strings.Contains(s.extra, "Using where") }

// collects reports that rows are read by what was read of indexes before, as a hint of the query's
// may ask for.
func (s planStep) collects() bool {
	return s.access == "index_merge" || strings.Contains(s.extra, "MRR")
}

// planOf explains a statement without its lock: the server may read a row by its key to make a
// plan, and would lock it.
func planOf(ctx context.Context, tx *sql.Tx, settings, statement string, args []any) ([]planStep, error) {
	lines, err := mysql.ShowOf(ctx, tx, settings+"EXPLAIN /*!80000 FORMAT=TRADITIONAL */ /*M! PARTITIONS */ "+statement, args...)
	steps := make([]planStep, len(lines))
	for i, line := range lines {
		_, isMySQL := line["filtered"] // MariaDB has this column in EXPLAIN EXTENDED alone
		steps[i] = planStep{line["type"], line["possible_keys"], line["key"], line["partitions"], line["Extra"], !isMySQL}
	}
	return steps, err
}

// maxVerdicts bounds the cache. A program with ever new texts pays for an EXPLAIN now and then.
const maxVerdicts = 512

// verdicts are the statements that are allowed, and by which index. Of a claim the text is allowed,
// and no index is kept. A refusal is not kept: the index may be made.
var verdicts = cache{allowed: map[string]access{}}

type cache struct {
	mu      sync.Mutex
	allowed map[string]access
}

func (c *cache) get(text string) (a access, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, known = c.allowed[text]
	return a, known
}

func (c *cache) put(text string, a access) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for old := range c.allowed {
		if len(c.allowed) < maxVerdicts {
			break
		}
		delete(c.allowed, old) // any: a map's order is random enough
	}
	c.allowed[text] = a
}

func (c *cache) remove(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.allowed, text)
}
