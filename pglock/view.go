package pglock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
)

// tableFacts reads the name of what is no table, among a relation, its partitions and its heirs.
// The server accepts FOR UPDATE there. Of a foreign table postgres_fdw leaves NOWAIT and SKIP
// LOCKED out, and other wrappers lock nothing. Of a view the server locks no rows if they come from
// a UNION, a CTE, a function or VALUES, and all rows if it plans the view apart from the query. Of
// a column of the table it reads the schema that has the operators of its type, below its domains.
// The operators of arrays, enums, ranges and rows are those of pg_catalog. A table that was made
// since the transaction's snapshot was taken is not in pg_class, as that is read.
//
// OFFSET 0 keeps the planner from reading all of pg_class. A level of the tree is an array, of
// which it guesses that it has ten elements. If it guessed by the size of pg_inherits, the server
// would compile the statement (jit) in a database with a thousand partitions of whatever table.
const tableFacts = `WITH RECURSIVE level AS (
    SELECT ARRAY[pg_catalog.to_regclass($1::text)::oid] AS ids
    UNION ALL
    SELECT below.ids FROM level, LATERAL (
        SELECT CASE WHEN (
            SELECT pg_catalog.bool_or(parent.is) FROM pg_catalog.unnest(level.ids) AS one(id), LATERAL (
                SELECT c.relhassubclass AS is FROM pg_catalog.pg_class c WHERE c.oid = one.id OFFSET 0
            ) AS parent
        ) THEN ARRAY(SELECT DISTINCT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = ANY (level.ids)) END AS ids
        OFFSET 0
    ) AS below
    WHERE pg_catalog.cardinality(below.ids) > 0::int4
), base AS (
    SELECT a.atttypid AS type FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = pg_catalog.to_regclass($1::text)::oid AND a.attname::text = $2::text
    UNION ALL
    SELECT t.typbasetype FROM base JOIN pg_catalog.pg_type t ON t.oid = base.type AND t.typtype = 'd'
)
SELECT (SELECT rel.name FROM level, pg_catalog.unnest(level.ids) AS one(id), LATERAL (
            SELECT c.relname::text AS name, c.relkind AS kind FROM pg_catalog.pg_class c WHERE c.oid = one.id OFFSET 0
        ) AS rel
        WHERE rel.kind NOT IN ('r', 'p') ORDER BY rel.name LIMIT 1),
    (SELECT CASE WHEN t.typcategory = 'A' OR t.typtype IN ('c', 'e', 'm', 'r') THEN 'pg_catalog'::text
            ELSE pg_catalog.quote_ident(n.nspname::text) END
        FROM base
        JOIN pg_catalog.pg_type t ON t.oid = base.type AND t.typtype <> 'd'
        JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace),
    pg_catalog.to_regclass($1::text) IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1::text)::oid)`

// view is what is seen of a table. Each call looks behind the statement that locks. One of which
// the operator is not known looks before it as well. The second look decides: what the statement
// has locked stays what it is until the transaction ends. The first one does not: a migration may
// put a view in the table's place while the statement waits for it.
type view struct {
	table  string
	column string // empty: of a claim, which compares none
	equal  string // the operator that compares the column
	looked bool   // before the lock, and found a table
	locked bool   // the rows are: the operator was used
	found  facts
}

// facts are a row of tableFacts.
type facts struct {
	Unlockable, Home *string
	Unseen           bool
}

// viewOf looks at a table, unless the operator of the column is known from another call.
func viewOf(ctx context.Context, tx Tx, table, column string) (*view, error) {
	v := &view{table: table, column: column, equal: operators.get(table, column)}
	if v.equal != "" {
		return v, nil
	}
	v.looked = true
	return v, v.query(ctx, tx)
}

// query asks the server.
func (v *view) query(ctx context.Context, tx Tx) error {
	answer, err := tx.Query(ctx, tableFacts, postgres.CheckPath{}, v.table, v.column)
	if err != nil {
		return err
	}
	return v.read(answer)
}

// read reads the answer, and keeps the operator for other calls.
func (v *view) read(answer pgx.Rows) (err error) {
	v.found, err = pgx.CollectExactlyOneRow(answer, pgx.RowToStructByPos[facts])
	if err != nil {
		return err
	}
	if v.found.Unseen {
		operators.put(v.table, v.column, "")
		return fmt.Errorf("%w: %s was made since the snapshot of the transaction: roll back and repeat", dblock.ErrConflict, v.table)
	}
	if v.found.Unlockable != nil {
		operators.put(v.table, v.column, "") // the next call looks first, so that it locks nothing
		return fmt.Errorf("%w: rows of %s can't be locked: it is a view or a foreign table: name the table itself",
			dblock.ErrUnsupported, *v.found.Unlockable)
	}
	if !v.locked {
		v.keep()
	}
	return nil
}

// keep keeps the operator with its schema: a search along the search_path could choose one that
// another role has made for the type.
func (v *view) keep() {
	home := "pg_catalog" // where there is no such column, the statement says what is missing
	if v.found.Home != nil {
		home = *v.found.Home
	}
	v.equal = "OPERATOR(" + home + ".=)"
	operators.put(v.table, v.column, v.equal)
}

// after is for the end of a statement that locks, or its error, and the look behind it. The
// statement is to be sent again if it compared by the operator of another type.
func (v *view) after(err error) (again bool, _ error) {
	var failed *pgconn.PgError
	if errors.As(err, &failed) && failed.Code == undefinedFunction && v.column != "" {
		operators.put(v.table, v.column, "")
		if v.looked {
			return false, fmt.Errorf("%w: keys are not comparable with values of %s: lock by another column: %w", dblock.ErrUnsupported, v.column, err)
		}
		return false, fmt.Errorf("%w: the type of %s is not what it was: roll back and repeat: %w", dblock.ErrConflict, v.column, err)
	}
	if err != nil {
		return false, v.unlockable(err)
	}
	used := v.equal
	v.keep()
	return v.equal != used, nil
}

// unlockable is for the error of a statement that was sent without a look before it: the server may
// have found something else than a table.
func (v *view) unlockable(err error) error {
	var failed *pgconn.PgError
	if errors.As(err, &failed) && slices.Contains(refusals, failed.Routine) {
		operators.put(v.table, v.column, "")
		return fmt.Errorf("%w: rows of %s can't be locked: name a table: %w", dblock.ErrUnsupported, v.table, err)
	}
	return err
}

// operators are those that compare columns, by the names of table and column.
var operators known

const undefinedFunction = "42883" // an operator is one, too

// refusals are the routines of the server that refuse what is no table. A function of the host's
// may raise the same SQLSTATE.
var refusals = []string{
	"CheckValidRowMarkRel", "GetFdwRoutineByServerId", "validate_relation_kind", "table_open", "table_openrv", "table_openrv_extended",
}

// maxKnown bounds what the process remembers.
const maxKnown = 512

type known struct {
	mu  sync.Mutex
	all map[[2]string]string
}

func (k *known) get(table, column string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[[2]string{table, column}]
}

func (k *known) put(table, column, fact string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil || len(k.all) >= maxKnown {
		k.all = map[[2]string]string{}
	}
	k.all[[2]string{table, column}] = fact
}
