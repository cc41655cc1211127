package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/schema"
)

// healthyPostgres has nothing but what is fine.
func healthyPostgres() Facts {
	f := Facts{
		Engine: enginePostgres, Product: "PostgreSQL", Version: "17.1", Known: true, Target: "h:5432/d", Database: "d", User: "u",
		Schema: "app", Have: schema.Version, Isolation: "read committed", Within: time.Millisecond,
		Settings: map[string]string{
			"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "statement_timeout": "0", "lock_timeout": "0",
			"client_connection_check_interval": "1000", "idle_in_transaction_session_timeout": "60000", "idle_session_timeout": "0", "synchronous_standby_names": "",
			"server_encoding": "UTF8",
		},
		ClientEncoding: "UTF8",
		Connections:    10, MaxConnections: 97, Locks: 10, LockCapacity: 6400,
	}
	f.setTables(kept("permanent"))
	for i := range f.Tables {
		f.Tables[i].Missing = false
	}
	return f
}

func healthyMySQL() Facts {
	f := Facts{
		Engine: engineMySQL, Product: "MySQL", Version: "8.4.3", Known: true, Target: "h:3306/d", Database: "d", User: "u@%",
		Schema: "app", Have: schema.Version, Isolation: "REPEATABLE-READ", Within: time.Millisecond,
		Settings: map[string]string{
			"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1", "innodb_doublewrite": "ON",
			"wait_timeout": "600", "innodb_lock_wait_timeout": "50", "max_execution_time": "0", "character_set_client": "utf8mb4",
			"sql_select_limit": "18446744073709551615", "completion_type": "NO_CHAIN", "sql_safe_updates": "OFF",
		},
		Connections: 10, MaxConnections: 151,
	}
	f.setTables(kept("InnoDB"))
	return f
}

func kept(storage string) map[string]Table {
	seen := map[string]Table{}
	for _, name := range append(schema.Tables(), schema.VersionTable) {
		seen[name] = Table{Name: name, Storage: storage}
	}
	return seen
}

func TestHealthyHasNothingButOK(t *testing.T) {
	t.Parallel()
	for _, f := range []Facts{healthyPostgres(), healthyMySQL()} {
		r := Evaluate(f)
		if got := worse(r); len(got) > 0 || r.Problems+r.Warnings > 0 {
			t.Errorf("%s: %v, %+v", f.Engine, got, r)
		}
		var made []string
		for _, finding := range r.Findings {
			made = append(made, finding.Check)
		}
		want := Checks()
		if f.Engine == engineMySQL {
			want = slices.DeleteFunc(want, func(c string) bool { return c == "lock_table" || c == "search_path" }) // MySQL has neither
		}
		if fmt.Sprint(made) != fmt.Sprint(want) {
			t.Errorf("%s: checks %v, want %v", f.Engine, made, want)
		}
	}
}

// worse lists the findings that are not fine, as status and check.
func worse(r Report) []string {
	var list []string
	for _, f := range r.Findings {
		if f.Status != OK {
			list = append(list, string(f.Status)+" "+f.Check)
		}
	}
	return list
}

type checked struct {
	change func(*Facts)
	want   []string // every finding that is not fine
	text   string   // in one of them
}

func set(name, value string) func(*Facts) { return func(f *Facts) { f.Settings[name] = value } }

func checkEach(t *testing.T, healthy func() Facts, cases map[string]checked) {
	t.Helper()
	for name, c := range cases {
		f := healthy()
		f.Settings = maps.Clone(f.Settings)
		c.change(&f)
		r := Evaluate(f)
		if got := worse(r); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if text := fmt.Sprint(r.Findings); !strings.Contains(text, c.text) {
			t.Errorf("%s: no %q in %s", name, c.text, text)
		}
		for _, found := range r.Findings {
			if found.Status != OK && found.Advice == "" {
				t.Errorf("%s: %q, and no word on what to do", name, found.Found)
			}
		}
	}
}

func TestEvaluatePostgres(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("%w: session locks: there is a pooler: connect directly", dblock.ErrUnsupported)
	checkEach(t, healthyPostgres, map[string]checked{
		"encoding":          {set("server_encoding", "LATIN1"), []string{"problem charset"}, "ENCODING 'UTF8'"},
		"client's encoding": {func(f *Facts) { f.ClientEncoding = "LATIN1" }, []string{"problem charset"}, "take client_encoding out"},
		"too old":           {func(f *Facts) { f.TooOld = schema.PostgresServer("13.4") }, []string{"problem server"}, "13.4 is too old: 14"},
		"foreign": {
			func(f *Facts) { f.Known, f.Product, f.SessionLocks = false, "CockroachDB", refused }, []string{"problem server", "note session_locks"}, "CockroachDB",
		},
		"Citus":                {func(f *Facts) { f.Cluster = "with Citus" }, []string{"warning server"}, "same node"},
		"standby":              {func(f *Facts) { f.Standby, f.ReadOnly = true, true }, []string{"problem writes"}, "target_session_attrs"},
		"read-only by default": {func(f *Facts) { f.ReadOnly = true }, []string{"warning writes"}, "read-only by default"},
		"pg_catalog is searched last": {
			func(f *Facts) { f.SearchPath = "public, pg_catalog" }, []string{"problem search_path"}, "search_path = public, pg_catalog",
		},
		"a stranger's tables": {func(f *Facts) { f.Stranger = `table dblock_stock belongs to role "x"` }, []string{"warning tables"}, `role "x", which`},
		"pooler": {
			func(f *Facts) { f.Pooled, f.SessionLocks = true, refused }, []string{"note pooler", "note session_locks"}, "there is a pooler: connect directly",
		},
		"pooler in statement mode": {func(f *Facts) { f.Pooled, f.NoTransactions = true, true }, []string{"problem pooler"}, "pool_mode"},
		"pooler, prepared":         {func(f *Facts) { f.Pooled, f.Prepares = true, true }, []string{"warning pooler"}, "cache_describe"},
		"no schema":                {func(f *Facts) { f.Schema, f.Have = "", 0 }, []string{"problem schema"}, "--schema"},
		"no tables":                {func(f *Facts) { f.Have = 0 }, []string{"problem schema"}, "dblock migrate up"},
		"older tables":             {func(f *Facts) { f.Have = schema.Version - 1 }, []string{"problem schema"}, "older than"},
		"newer tables":             {func(f *Facts) { f.Have = schema.Version + 1 }, []string{"problem schema"}, "newer than"},
		"unreadable": {
			func(f *Facts) { f.Have, f.Unread = 0, errors.New("permission\n denied") }, []string{"problem schema"}, "permission denied",
		},
		"unlogged": {
			func(f *Facts) { f.Tables[1].Storage = "unlogged" }, []string{"problem tables"}, `ALTER TABLE "app".` + schema.Tables()[1] + " SET LOGGED",
		},
		"dropped": {func(f *Facts) { f.Tables[1] = Table{Name: "dblock_x", Missing: true} }, []string{"problem tables"}, "dblock_x is missing"},
		"grants": {
			func(f *Facts) { f.Tables[0].Lacks = []string{"INSERT", "UPDATE"} }, []string{"problem grants"},
			`GRANT INSERT, UPDATE ON "app".` + schema.Tables()[0] + ` TO "u"`,
		},
		"usage":                 {func(f *Facts) { f.NoUsage = true }, []string{"problem grants"}, `GRANT USAGE ON SCHEMA "app" TO "u"`},
		"fsync":                 {set("fsync", "off"), []string{"problem durability"}, "set fsync = on"},
		"asynchronous":          {set("synchronous_commit", "off"), []string{"problem durability"}, "tokens"},
		"torn pages":            {set("full_page_writes", "off"), []string{"warning durability"}, "pages"},
		"standbys":              {func(f *Facts) { f.Replicas = 2 }, []string{"note durability"}, "2 standbys"},
		"ahead":                 {func(f *Facts) { f.Ahead = 90 * time.Second }, []string{"problem clock"}, "1m30s ahead of"},
		"behind":                {func(f *Facts) { f.Ahead = -2 * time.Second }, []string{"problem clock"}, "2s behind"},
		"a little":              {func(f *Facts) { f.Ahead = 900 * time.Millisecond }, nil, "900ms ahead of"},
		"far away":              {func(f *Facts) { f.Ahead, f.Within = 2*time.Second, 3*time.Second }, []string{"note clock"}, "nearer"},
		"short statements":      {set("statement_timeout", "500"), []string{"warning timeouts"}, "500ms"},
		"long statements":       {set("statement_timeout", "30000"), nil, ""},
		"lock_timeout":          {set("lock_timeout", "2000"), []string{"note timeouts"}, "lock_timeout = 2s"},
		"transactions":          {set("transaction_timeout", "2000"), []string{"note timeouts"}, "transaction_timeout = 2s"},
		"idle sessions":         {set("idle_session_timeout", "60000"), []string{"warning timeouts"}, "idle_session_timeout = 1m0s"},
		"idle for ever":         {set("idle_in_transaction_session_timeout", "0"), []string{"note timeouts"}, "hangs"},
		"clients that are gone": {set("client_connection_check_interval", "0"), []string{"note timeouts"}, "whose client has gone"},
		"short pauses":          {set("idle_in_transaction_session_timeout", "5000"), []string{"note timeouts"}, "= 5s"},
		"serializable":          {func(f *Facts) { f.Isolation = "serializable" }, []string{"note isolation"}, "serializable"},
		"read uncommitted":      {func(f *Facts) { f.Isolation = "read uncommitted" }, nil, ""},
		"repeatable read":       {func(f *Facts) { f.Isolation = "repeatable read" }, []string{"note isolation"}, "run again"},
		"many connections":      {func(f *Facts) { f.Connections = 80 }, []string{"warning connections"}, "80 of 97"},
		"no connections":        {func(f *Facts) { f.Connections = 96 }, []string{"problem connections"}, "96 of 97"},
		"many locks":            {func(f *Facts) { f.Locks = 3300 }, []string{"warning lock_table"}, "3300 locks"},
		"no room for more":      {func(f *Facts) { f.Locks = 6000 }, []string{"problem lock_table"}, "max_locks_per_transaction"},
		"a name that plays":     {func(f *Facts) { f.Schema, f.Have = "a\x1bb", 0 }, []string{"problem schema"}, `a\x1bb`},
	})
}

func TestEvaluateMySQL(t *testing.T) {
	t.Parallel()
	_, tooOld := schema.MySQLServer("8.0.15")
	checkEach(t, healthyMySQL, map[string]checked{
		"too old":             {func(f *Facts) { f.TooOld = tooOld }, []string{"problem server"}, "8.0.16"},
		"foreign":             {func(f *Facts) { f.Known, f.Product = false, "TiDB" }, []string{"problem server"}, "TiDB"},
		"Galera":              {func(f *Facts) { f.Cluster = "a node of a Galera cluster" }, []string{"warning server"}, "same node"},
		"replica":             {func(f *Facts) { f.Standby = true }, []string{"problem writes"}, "primary"},
		"proxy":               {func(f *Facts) { f.Pooled, f.Prepares = true, true }, []string{"note pooler"}, "proxy"},
		"a limit of rows":     {set("sql_select_limit", "1000"), []string{"problem writes"}, "take sql_select_limit out"},
		"a chain":             {set("completion_type", "CHAIN"), []string{"problem writes"}, "take completion_type out"},
		"safe updates":        {set("sql_safe_updates", "ON"), []string{"problem writes"}, "take sql_safe_updates out"},
		"no checks":           {set("check_constraint_checks", "OFF"), []string{"problem writes"}, "take check_constraint_checks out"},
		"autocommit off":      {set("autocommit", "OFF"), []string{"problem writes"}, "autocommit=0"},
		"a column of another": {func(f *Facts) { f.Differ = []string{`column a.b is "int" instead of "bigint"`} }, []string{"problem tables"}, "column a.b"},
		"a table that is not seen": {
			func(f *Facts) {
				f.Tables[1] = Table{Name: "dblock_x", Missing: true}
				f.Differ = []string{"table dblock_x is missing"}
			}, []string{"problem tables"}, "docs/grants.md",
		},
		"storage": {func(f *Facts) { f.Tables[2].Storage = "MyISAM" }, []string{"problem tables"}, "ENGINE = InnoDB"},
		"grants": {
			func(f *Facts) { f.Tables[0].Lacks = []string{"UPDATE"} }, []string{"problem grants"},
			"GRANT UPDATE ON `app`." + schema.Tables()[0] + " TO 'u'@'%'",
		},
		"a clock that stands":      {func(f *Facts) { f.ClockStandsStill, f.Ahead = true, -time.Hour }, []string{"problem clock"}, "take timestamp out"},
		"character set":            {set("character_set_client", "gbk"), []string{"problem charset"}, "charset=utf8mb4"},
		"log":                      {set("innodb_flush_log_at_trx_commit", "2"), []string{"problem durability"}, "= 2"},
		"two flushes":              {set("innodb_flush_log_at_trx_commit", "3"), nil, ""},
		"binary log":               {set("sync_binlog", "0"), []string{"problem durability"}, "sync_binlog = 1"},
		"binary log of statements": {set("binlog_format", "STATEMENT"), []string{"problem writes"}, "binlog_format = ROW"},
		"statements without a binary log": {
			func(f *Facts) { f.Settings["log_bin"], f.Settings["binlog_format"] = "OFF", "STATEMENT" }, nil, "",
		},
		"no binary log":     {func(f *Facts) { f.Settings["log_bin"], f.Settings["sync_binlog"] = "OFF", "0" }, nil, ""},
		"torn pages":        {set("innodb_doublewrite", "OFF"), []string{"warning durability"}, "pages"},
		"gone soon":         {set("wait_timeout", "30"), []string{"warning timeouts"}, "30s"},
		"gone late":         {set("wait_timeout", "28800"), []string{"note timeouts"}, "8h"},
		"long waits":        {set("innodb_lock_wait_timeout", "300"), []string{"note timeouts"}, "5m0s"},
		"short reads":       {func(f *Facts) { f.ReadTimeout = time.Second }, []string{"warning timeouts"}, "readTimeout"},
		"short selects":     {set("max_execution_time", "1000"), []string{"warning timeouts"}, "max_execution_time = 1s"},
		"short statements":  {set("max_statement_time", "0.500000"), []string{"warning timeouts"}, "500ms"},
		"idle transactions": {set("idle_transaction_timeout", "9"), []string{"note timeouts"}, "9s"},
		"read committed":    {func(f *Facts) { f.Isolation = "READ-COMMITTED" }, nil, ""},
		"read uncommitted":  {func(f *Facts) { f.Isolation = "READ-UNCOMMITTED" }, []string{"problem isolation"}, "refused"},
		"serializable":      {func(f *Facts) { f.Isolation = "SERIALIZABLE" }, []string{"note isolation"}, "SERIALIZABLE"},
		"many connections":  {func(f *Facts) { f.Connections = 125 }, []string{"warning connections"}, "125 of 151"},
	})
}

// TestNothingPlaysWithTheTerminal: the server chooses its version's text.
func TestNothingPlaysWithTheTerminal(t *testing.T) {
	t.Parallel()
	f := healthyPostgres()
	f.Version = "17\x1b[2J"
	for _, found := range Evaluate(f).Findings {
		if strings.ContainsRune(found.Found+found.Advice, '\x1b') {
			t.Errorf("%q", found)
		}
	}
}

// TestPathThatIsRefused: the command line cannot set another path behind a pooler. It is no matter
// of the connection.
func TestPathThatIsRefused(t *testing.T) {
	t.Parallel()
	r := unreachable(enginePostgres, "", fmt.Errorf("connecting: %w", postgres.CheckSearchPath("public, pg_catalog")))
	if got := worse(r); fmt.Sprint(got) != "[problem search_path]" || r.Problems != 1 {
		t.Errorf("%v, %+v", got, r)
	}
}
