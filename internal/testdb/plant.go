package testdb

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Plant makes what a role needs to run its own code as another role: in the schema public, every
// operator over common types that pg_catalog lacks, and functions for argument types that
// pg_catalog has no exact match for. It makes those that the text of the statements may name. A
// planted function raises an error with the word "planted", and only its owner may call it: so a
// statement that names one fails for other roles when it is explained, and for all when it runs.
// Plant returns how many operators and functions it made.
func Plant(tb testing.TB, conn *pgx.Conn, statements string) (operators, functions int) {
	tb.Helper()
	names := namesIn(statements)
	used := slices.DeleteFunc(slices.Clone(plantedOperators), func(o string) bool { return !strings.Contains(statements, o) })
	if _, err := conn.Exec(tb.Context(), plantSQL); err != nil {
		tb.Fatalf("testdb: plant: %v", err)
	}
	err := conn.QueryRow(tb.Context(), "SELECT * FROM pg_temp.plant($1, $2, $3, $4)", used, plantedTypes, names, plantedPairs).
		Scan(&operators, &functions)
	if err != nil {
		tb.Fatalf("testdb: plant: %v", err)
	}
	return operators, functions
}

// PlantBefore plants for a search_path on which public comes before pg_catalog: a copy of each
// operator of pg_catalog, of each function that the text of the statements may name, and of each
// type of plantedTypes, which refuses every value.
func PlantBefore(tb testing.TB, conn *pgx.Conn, statements string) (operators, functions int) {
	tb.Helper()
	if _, err := conn.Exec(tb.Context(), plantBeforeSQL); err != nil {
		tb.Fatalf("testdb: plant: %v", err)
	}
	types := slices.DeleteFunc(slices.Clone(plantedTypes), func(name string) bool { return strings.HasSuffix(name, "[]") })
	err := conn.QueryRow(tb.Context(), "SELECT * FROM pg_temp.plant_before($1, $2)", namesIn(statements), types).Scan(&operators, &functions)
	if err != nil {
		tb.Fatalf("testdb: plant: %v", err)
	}
	return operators, functions
}

// namesIn are those of what may be functions.
func namesIn(statements string) (names []string) {
	for _, found := range called.FindAllStringSubmatch(statements, -1) {
		names = append(names, found[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// called finds what may be a function.
var called = regexp.MustCompile(`\b([a-z_][a-z0-9_]*)\s*\(`)

var plantedOperators = []string{
	"+", "-", "*", "/", "%", "^", "||", "<", "<=", "=", "<>", ">", ">=", "~~", "!~~", "~", "&", "|", "<<", ">>", "@>", "<@", "&&", "->", "->>",
}

// plantedTypes are the arguments of operators, and of functions of one argument.
var plantedTypes = []string{
	"int2", "int4", "int8", "numeric", "float4", "float8", "text", "varchar", "bpchar", "name", `"char"`, "uuid", "bytea", "bool",
	"timestamptz", "timestamp", "date", "interval", "jsonb", "oid", "regclass",
	"int2[]", "int4[]", "int8[]", "numeric[]", "float8[]", "text[]", "uuid[]", "bytea[]", "bool[]", "timestamptz[]", "interval[]",
}

// plantedPairs are the arguments of functions of two and three arguments.
var plantedPairs = []string{
	"int4", "int8", "numeric", "float8", "text", "varchar", "name", "bool", "timestamptz", "oid", "text[]",
}

const plantSQL = `
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
CREATE FUNCTION pg_temp.plant(ops text[], types text[], names text[], pairs text[], OUT operators int, OUT calls int)
LANGUAGE plpgsql AS $plant$
DECLARE
    l text; r text; o text; c text; args text;
    body CONSTANT text := ' LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION ''''planted''''; END''';
BEGIN
    operators := 0; calls := 0;
    FOREACH l IN ARRAY types LOOP
        FOREACH r IN ARRAY types LOOP
            EXECUTE format('CREATE FUNCTION public.planted_test(%s, %s) RETURNS bool', l, r) || body;
            EXECUTE format('CREATE FUNCTION public.planted_value(%s, %s) RETURNS %1$s', l, r) || body;
            EXECUTE format('CREATE FUNCTION public.planted_text(%s, %s) RETURNS text', l, r) || body;
            FOREACH o IN ARRAY ops LOOP
                CONTINUE WHEN EXISTS (SELECT FROM pg_operator p WHERE p.oprname = o AND p.oprnamespace = 'pg_catalog'::regnamespace
                    AND p.oprleft = l::regtype AND p.oprright = r::regtype);
                EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.planted_%s)', o, l, r,
                    CASE WHEN o IN ('+', '-', '*', '/', '%', '^', '&', '|') THEN 'value' WHEN o IN ('||', '->', '->>') THEN 'text' ELSE 'test' END);
                operators := operators + 1;
            END LOOP;
        END LOOP;
    END LOOP;
    FOR c, args IN
        SELECT DISTINCT n.n, a.a FROM unnest(names) n(n), LATERAL (
            SELECT t FROM unnest(types) t
            UNION ALL SELECT f || ',' || s FROM unnest(pairs) f, unnest(pairs) s
            UNION ALL SELECT f || ',' || s FROM unnest(pairs) f, unnest(ARRAY['int4,int4', 'text,bool', 'text,text', 'bool,bool']) s
            UNION ALL SELECT 'text,' || f || ',bool' FROM unnest(pairs) f
        ) a(a)
        WHERE EXISTS (SELECT FROM pg_proc p WHERE p.proname = n.n AND p.pronamespace = 'pg_catalog'::regnamespace)
    LOOP
        CONTINUE WHEN to_regprocedure('pg_catalog.' || quote_ident(c) || '(' || args || ')') IS NOT NULL;
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s', c, args, split_part(args, ',', 1)) || body;
        calls := calls + 1;
    END LOOP;
END $plant$`

const plantBeforeSQL = `
CREATE FUNCTION pg_temp.plant_before(names text[], types text[], OUT operators int, OUT calls int)
LANGUAGE plpgsql AS $plant$
DECLARE
    o record; name text;
    body CONSTANT text := ' LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION ''''planted''''; END''';
BEGIN
    operators := 0; calls := 0;
    FOR o IN
        SELECT p.oprname AS name, l.oid::regtype::text AS l, r.oid::regtype::text AS r, p.oprresult::regtype::text AS result
        FROM pg_operator p JOIN pg_type l ON l.oid = p.oprleft JOIN pg_type r ON r.oid = p.oprright
        WHERE p.oprnamespace = 'pg_catalog'::regnamespace AND l.typtype <> 'p' AND r.typtype <> 'p'
    LOOP
        EXECUTE format('CREATE FUNCTION public.planted_%s(%s, %s) RETURNS %s', operators, o.l, o.r, o.result) || body;
        EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.planted_%s)', o.name, o.l, o.r, operators);
        operators := operators + 1;
    END LOOP;
    FOR o IN
        SELECT DISTINCT p.proname AS name, oidvectortypes(p.proargtypes) AS args FROM pg_proc p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.proname = ANY (names)
          AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) a JOIN pg_type t ON t.oid = a WHERE t.typtype = 'p')
    LOOP
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS bool', o.name, o.args) || body;
        calls := calls + 1;
    END LOOP;
    EXECUTE 'CREATE FUNCTION public.planted_value() RETURNS bool' || body;
    FOREACH name IN ARRAY types LOOP
        EXECUTE format('CREATE DOMAIN public.%s AS pg_catalog.%1$s CHECK (public.planted_value())', name);
    END LOOP;
END $plant$`
