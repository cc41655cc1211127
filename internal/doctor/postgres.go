package doctor

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Without certain values of these pgx sends no statement of the simple protocol with arguments.
const (
	clientEncoding    = "client_encoding"
	conformingStrings = "standard_conforming_strings"
)

// closing is for how long the end of a connection is waited for.
const closing = 5 * time.Second

// Postgres examines the server that config leads to, with dblock's tables in the schema of that
// name; "" is where the connection looks. A server that can't be reached is a finding as well. It
// writes nothing.
func Postgres(ctx context.Context, config *pgx.ConnConfig, name string) Report {
	target := targetOf(config)
	config = config.Copy()
	prepares := config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
	simple := config.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol
	// Nothing is prepared, so that whatever pooler there is lets all through.
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return unreachable(enginePostgres, target, err)
	}
	encoding := conn.PgConn().ParameterStatus(clientEncoding)
	needs := map[string]string{}
	if postgres.CheckClientEncoding(encoding) != nil {
		needs[clientEncoding] = "UTF8"
	}
	if !simple && conn.PgConn().ParameterStatus(conformingStrings) != "on" { // else the service can't either
		needs[conformingStrings] = "on"
	}
	if len(needs) > 0 {
		_ = conn.Close(ctx)
		maps.Copy(config.RuntimeParams, needs)
		if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			return unreachable(enginePostgres, target, err)
		}
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
		defer cancel()
		_ = conn.Close(ctx) // all has been said
	}()
	f, err := postgresFacts(ctx, conn, name)
	if err != nil {
		return unreachable(enginePostgres, target, err)
	}
	f.Target, f.Prepares, f.ClientEncoding = target, prepares, encoding
	f.NoTransactions = f.Known && f.Pooled && postgres.RefusesTransactions(ctx, conn) // last: it may end the connection
	return Evaluate(f)
}

// targetOf has all the hosts that the DSN lists: any of them may be the one that answered.
func targetOf(config *pgx.ConnConfig) string {
	hosts := []string{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))}
	for _, f := range config.Fallbacks {
		if host := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))); !slices.Contains(hosts, host) { // without TLS the same is there again
			hosts = append(hosts, host)
		}
	}
	return strings.Join(hosts, ",") + "/" + config.Database
}

func postgresFacts(ctx context.Context, conn *pgx.Conn, name string) (Facts, error) {
	s, err := postgres.Probe(ctx, conn)
	if err != nil {
		return Facts{}, err
	}
	f := Facts{
		Engine: enginePostgres, Product: string(s.Product), Version: cmp.Or(s.Settings["server_version"], s.Version), Known: s.Product.Known(),
		Database: s.Database, User: s.User, Pooled: s.Pooled, Standby: s.Standby, ReadOnly: s.ReadOnly, SessionLocks: s.SessionLocks(),
		Ahead: s.ClockAhead, Within: s.ClockWithin, Isolation: s.Isolation, Settings: s.Settings, LockCapacity: s.LockCapacity,
		MaxConnections: s.Number("max_connections") - s.Number("superuser_reserved_connections") - s.Number("reserved_connections"),
	}
	if !f.Known {
		return f, nil
	}
	if s.Product == postgres.Citus {
		f.Product, f.Cluster = string(postgres.PostgreSQL), "with Citus"
	}
	f.TooOld = schema.PostgresServer(f.Version)
	if err := f.countPostgres(ctx, conn); err != nil {
		return Facts{}, err
	}
	if err := f.searchPathPostgres(ctx, conn); err != nil {
		return Facts{}, err
	}
	return f, f.tablesPostgres(ctx, conn, name)
}

const (
	// pathPostgres is the search_path that the session began with. The one in use may have been set
	// since.
	pathPostgres = "SELECT s.reset_val FROM pg_catalog.pg_settings s WHERE s.name = 'search_path'::text"

	creatorsPostgres = `SELECT n.nspname::text, CASE a.grantee WHEN 0::oid THEN 'PUBLIC'::text ELSE pg_catalog.pg_get_userbyid(a.grantee)::text END
FROM pg_catalog.pg_namespace n, LATERAL pg_catalog.aclexplode(n.nspacl) a
WHERE n.nspname = ANY ($1::text[]::name[]) AND pg_catalog.has_schema_privilege(n.oid, 'USAGE'::text)
  AND a.privilege_type = 'CREATE'::text AND a.grantee <> n.nspowner
  AND (a.grantee = 0::oid OR NOT EXISTS (
      SELECT FROM pg_catalog.pg_roles r WHERE r.oid = a.grantee AND (r.rolsuper OR r.rolname = current_user)))
ORDER BY 1, 2`
)

// searchPathPostgres reads the search_path, and the roles that could plant an operator or a
// function for this user's statements to find.
func (f *Facts) searchPathPostgres(ctx context.Context, conn *pgx.Conn) error {
	if err := conn.QueryRow(ctx, pathPostgres).Scan(&f.SearchPath); err != nil {
		return err
	}
	names := postgres.SplitSearchPath(f.SearchPath)
	for i, name := range names {
		if name == "$user" {
			names[i] = f.User
		}
	}
	rows, err := conn.Query(ctx, creatorsPostgres, names)
	if err != nil {
		return err
	}
	f.Creators, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Creator])
	return err
}

// countPostgres reads what every user may see: of pg_stat_activity that is less.
func (f *Facts) countPostgres(ctx context.Context, conn *pgx.Conn) error {
	return conn.QueryRow(ctx, "SELECT (SELECT count(*) FROM pg_catalog.pg_locks l WHERE NOT l.fastpath)::int,"+
		" (SELECT coalesce(sum(d.numbackends), 0) FROM pg_catalog.pg_stat_database d)::int,"+
		" (SELECT count(*) FROM pg_catalog.pg_stat_replication)::int").Scan(&f.Locks, &f.Connections, &f.Replicas)
}

const (
	seenPostgres = "SELECT c.relname::text, c.relpersistence::text, pg_catalog.has_schema_privilege(n.oid, 'USAGE')," +
		" pg_catalog.has_table_privilege(c.oid, 'SELECT'), pg_catalog.has_table_privilege(c.oid, 'INSERT')," +
		" pg_catalog.has_table_privilege(c.oid, 'UPDATE'), pg_catalog.has_table_privilege(c.oid, 'DELETE')" +
		" FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace" +
		` WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND c.relname::text LIKE 'dblock\_%'`
)

func (f *Facts) tablesPostgres(ctx context.Context, conn *pgx.Conn, name string) error {
	var err error
	if f.Schema, err = postgres.FindSchema(ctx, conn, name); err != nil {
		return err
	}
	var q pgdb.Queries
	server, err := q.ServerVersion(ctx, conn, f.Schema)
	if err != nil {
		return err
	}
	if f.Unread = postgres.CheckOwners(server.Untrusted); f.Unread != nil {
		return nil // to read the version could run the role's functions
	}
	owner, err := q.ForeignOwner(ctx, conn, f.Schema)
	if err != nil {
		return err
	}
	f.Stranger = owner.Stranger
	have, err := q.SchemaVersion(ctx, postgres.NewSchema(f.Schema).On(conn))
	switch {
	case err == nil:
		f.Have = have
	case postgres.Classify(err) != sqlerr.NoSchema:
		f.Unread = err
	}
	rows, err := conn.Query(ctx, seenPostgres, f.Schema)
	if err != nil {
		return err
	}
	defer rows.Close()
	seen := map[string]Table{}
	for rows.Next() {
		var t Table
		var usage bool
		var may [4]bool
		if err := rows.Scan(&t.Name, &t.Storage, &usage, &may[0], &may[1], &may[2], &may[3]); err != nil {
			return err
		}
		f.NoUsage = f.NoUsage || !usage
		t.Storage = map[string]string{"p": "permanent", "u": "unlogged", "t": "temporary"}[t.Storage]
		for i, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			if !may[i] && slices.Contains(schema.Rights(schema.Postgres, t.Name), right) {
				t.Lacks = append(t.Lacks, right)
			}
		}
		seen[t.Name] = t
	}
	f.setTables(seen)
	if err := rows.Err(); err != nil || !f.current() {
		return err
	}
	f.Differ, err = postgres.SchemaDifferences(ctx, conn, f.Schema, f.Have)
	return err
}

// setTables lists what there should be.
func (f *Facts) setTables(seen map[string]Table) {
	for _, name := range append(schema.Tables(), schema.VersionTable) {
		t, there := seen[name]
		t.Name, t.Missing = name, !there
		f.Tables = append(f.Tables, t)
	}
}
