package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/rowlock"
)

// tableFacts reads the name of what is no table, among a relation, its partitions and its heirs.
// The server accepts FOR UPDATE there. Of a foreign table postgres_fdw leaves NOWAIT and SKIP
// LOCKED out, and other wrappers lock nothing. Of a view the server locks no rows if they come from
// a UNION, a CTE, a function or VALUES, and all rows if it plans the view apart from the query. Of
// a column of the table it reads the schema that has the operators of its type, below its domains.
// The operators of arrays, enums, ranges and rows are those of pg_catalog.
//
// OFFSET 0 keeps the planner from reading all of pg_class.
const tableFacts = relations + facets + `NULL::text`

// claimFacts are tableFacts of a claim, and a function that may read other tables. Such is one of
// the database's own in SQL or a procedural language, but for those of extensions. The query calls
// it by its name, as a column of a row, or by an operator, or a policy calls it. A cast may call
// any cast function, and any function in a CHECK of a domain. The server cuts long names, as name[]
// does. What the query names is in a schema of the search_path, or in one that it names: what
// others make elsewhere, as in their temporary schema, is none of its concern.
//
// It reads the catalogs by their indexes: there may be thousands of functions.
const claimFacts = relations + `, home AS MATERIALIZED (
    SELECT n.oid FROM pg_catalog.pg_namespace n
    WHERE n.nspname = ANY (pg_catalog.current_schemas(true)) OR n.nspname::text = ANY ($6::text[]::name[]::text[])
), called(id, what) AS (
    SELECT p.oid, pg_catalog.concat('the function '::text, p.proname::text) FROM pg_catalog.pg_proc p JOIN home ON home.oid = p.pronamespace
    WHERE p.proname = ANY ($3::text[]::name[])
    UNION ALL
    SELECT p.oid, pg_catalog.concat('the function '::text, p.proname::text) FROM pg_catalog.pg_proc p JOIN home ON home.oid = p.pronamespace
    WHERE p.proname = ANY ($4::text[]::name[]) AND p.pronargs = 1::int2 AND p.proargtypes[0] IN (SELECT rel.type FROM rel)
    UNION ALL
    SELECT o.oprcode::oid, pg_catalog.concat('the operator '::text, o.oprname::text) FROM pg_catalog.pg_operator o
    JOIN home ON home.oid = o.oprnamespace WHERE o.oprname = ANY ($5::text[]::name[])
    UNION ALL
    SELECT c.castfunc, pg_catalog.concat('the cast to '::text, pg_catalog.format_type(c.casttarget, NULL::int4)) FROM pg_catalog.pg_cast c
    JOIN pg_catalog.pg_type s ON s.oid = c.castsource JOIN home ON home.oid = s.typnamespace
    JOIN pg_catalog.pg_type t ON t.oid = c.casttarget JOIN home there ON there.oid = t.typnamespace
    WHERE '::'::text = ANY ($5::text[])
    UNION ALL
    SELECT COALESCE(o.oprcode::oid, d.refobjid), pg_catalog.concat('the domain '::text, pg_catalog.format_type(k.contypid, NULL::int4))
    FROM pg_catalog.pg_constraint k JOIN home ON home.oid = k.connamespace
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass::oid AND d.objid = k.oid
        AND d.refclassid IN ('pg_catalog.pg_proc'::pg_catalog.regclass::oid, 'pg_catalog.pg_operator'::pg_catalog.regclass::oid)
    LEFT JOIN pg_catalog.pg_operator o ON o.oid = d.refobjid AND d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass::oid
    WHERE '::'::text = ANY ($5::text[]) AND k.contypid <> 0::oid
    UNION ALL
    SELECT f.id, pg_catalog.concat('a policy of row level security on '::text, rel.name) FROM rel
    JOIN pg_catalog.pg_policy p ON p.polrelid = rel.oid
    CROSS JOIN LATERAL (
        SELECT m.id[1]::oid FROM pg_catalog.regexp_matches(p.polqual::text, 'funcid ([0-9]+)'::text, 'g'::text) AS m(id)
        UNION ALL
        SELECT NULL::oid WHERE p.polqual::text ~ '[{]SUBLINK'::text
    ) AS f(id)
    WHERE rel.oid = pg_catalog.to_regclass($1::text)::oid AND pg_catalog.row_security_active(rel.oid)
)` + facets + `(SELECT called.what FROM called
    WHERE called.id IS NULL OR called.id >= 16384::oid AND EXISTS (
        SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang
        WHERE p.oid = called.id AND l.lanname::text NOT IN ('internal'::text, 'c'::text))
    AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass::oid AND d.objid = called.id AND d.deptype = 'e')
    LIMIT 1)`

const (
	relations = `WITH RECURSIVE part AS (
    SELECT pg_catalog.to_regclass($1::text)::oid AS id
    UNION
    SELECT i.inhrelid FROM part JOIN pg_catalog.pg_inherits i ON i.inhparent = part.id
), rel AS MATERIALIZED (
    SELECT c.oid, c.relname::text AS name, c.relkind AS kind, c.reltype AS type FROM part, LATERAL (
        SELECT * FROM pg_catalog.pg_class c WHERE c.oid = part.id OFFSET 0
    ) AS c
), base AS (
    SELECT a.atttypid AS type FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = pg_catalog.to_regclass($1::text)::oid AND a.attname::text = $2::text
    UNION ALL
    SELECT t.typbasetype FROM base JOIN pg_catalog.pg_type t ON t.oid = base.type AND t.typtype = 'd'
)`
	facets = `
SELECT (SELECT rel.name FROM rel WHERE rel.kind NOT IN ('r', 'p') ORDER BY rel.name LIMIT 1),
    (SELECT CASE WHEN t.typcategory = 'A' OR t.typtype IN ('c', 'e', 'm', 'r') THEN 'pg_catalog'::text
            ELSE pg_catalog.quote_ident(n.nspname::text) END
        FROM base
        JOIN pg_catalog.pg_type t ON t.oid = base.type AND t.typtype <> 'd'
        JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace),
    `
)

// view is what is seen of a table before its rows are locked.
type view struct {
	table  string
	column string
	claim  *rowlock.Conditions // of the query of a claim
	equal  string              // the operator that compares the column

	pending bool // the statement that reads it goes with the one that locks
	found   facts
}

// facts are a row of tableFacts or claimFacts.
type facts struct{ Unlockable, Home, Stale *string }

// look is the query for the facts, and its arguments.
func (v *view) look() (query string, args []any) {
	if v.claim == nil {
		return tableFacts, []any{v.table, v.column}
	}
	text := func(names []string) []string { return append([]string{}, names...) }
	return claimFacts, []any{v.table, v.column, text(v.claim.Functions), text(v.claim.Members), text(v.claim.Operators), text(v.claim.Homes)}
}

// viewOf looks at a table. Where tx has batches and the operator of the column is known from
// another call, the look goes with the statement that locks.
func viewOf(ctx context.Context, tx Tx, table, column string) (*view, error) {
	v := &view{table: table, column: column, equal: operators.get(table, column)}
	if _, ok := tx.(batcher); ok && v.equal != "" {
		v.pending = true
		return v, nil
	}
	return v, v.query(ctx, tx)
}

// query asks the server.
func (v *view) query(ctx context.Context, tx Tx) error {
	query, args := v.look()
	answer, err := tx.Query(ctx, query, append([]any{postgres.CheckPath{}}, args...)...)
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
	if err := v.lockable(); err != nil {
		return err
	}
	if !v.pending && v.column != "" {
		v.keep()
	}
	return nil
}

// lockable refuses a table of which some rows can't be locked.
func (v *view) lockable() error {
	switch {
	case v.found.Unlockable == nil && v.found.Stale == nil:
		return nil
	case v.found.Unlockable == nil:
		return &dblock.InvalidError{Field: "query", Reason: *v.found.Stale + " may read other tables: " + rowlock.StaleReason}
	}
	return fmt.Errorf("%w: rows of %s can't be locked: it is a view or a foreign table: name the table itself",
		dblock.ErrUnsupported, *v.found.Unlockable)
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

// after checks the look that went with the statement that locks, and that statement's error. The
// statement is to be sent again if it compared by the operator of another type.
func (v *view) after(err error) (again bool, _ error) {
	if !v.pending {
		return false, err
	}
	v.pending = false
	var failed *pgconn.PgError
	if errors.As(err, &failed) && failed.Code == undefinedFunction {
		operators.put(v.table, v.column, "")
		return false, fmt.Errorf("%w: the type of %s is not what it was: roll back and repeat: %w", dblock.ErrConflict, v.column, err)
	}
	if err != nil {
		return false, err
	}
	used := v.equal
	v.keep()
	return v.equal != used, nil
}

var (
	operators known // that compare columns, by the names of table and column
	claims    known // that were seen to lock what they return: "yes", by table and query
)

const undefinedFunction = "42883" // an operator is one, too

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
