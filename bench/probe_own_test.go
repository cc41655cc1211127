package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// testMaxConns is what devdb sets on the servers that it starts.
const testMaxConns = 1000

// ownServer is a durable server that no other test uses, with a database on it; nil if the servers
// under test are given from outside, and can't be restarted or counted on to be quiet.
func ownServer(t *testing.T, kind devdb.Kind) (server *devdb.Server, dsn string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server, err := devdb.Start(ctx, kind, devdb.Options{Durable: true})
	if err != nil && !errors.As(err, new(*devdb.NotFoundError)) {
		t.Fatal(err)
	}
	if err != nil || server.PID() == 0 {
		t.Logf("no %s server that is ours alone", kind)
		return nil, ""
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	dsn, _, err = server.CreateDatabase(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return server, dsn
}

// One server a kind lives through all of this, in this order, because starting one takes seconds.
func TestOnAServerOfOnesOwn(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server, dsn := ownServer(t, kind)
			if server == nil {
				return
			}
			t.Run("it is durable", func(t *testing.T) { durableServer(t, server) })
			t.Run("the log grows by what is committed", func(t *testing.T) { logIsCounted(t, server, dsn) })
			t.Run("statements are counted", func(t *testing.T) { statementsAreCounted(t, server, dsn) })
			t.Run("options of the DSN change nothing", func(t *testing.T) { optionsChangeNothing(t, server, dsn) })
			t.Run("free connections are counted", func(t *testing.T) { freeConnectionsAreCounted(t, server) })
		})
	}
}

func durableServer(t *testing.T, server *devdb.Server) {
	s, err := openProbe(t, server.Kind, server.AdminDSN()).settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	completeSettings(t, s)
	if ok, why := s.durable(); !ok {
		t.Errorf("%s, with %v", why, s.List)
	}
	buffers := "innodb_buffer_pool_size"
	want := "256M"
	if server.Kind == devdb.Postgres {
		buffers, want = "shared_buffers", "256MB"
	}
	if s.get(buffers) != want || s.get("max_connections") != strconv.Itoa(testMaxConns) {
		t.Errorf("want %s=%s and max_connections=%d in %v", buffers, want, testMaxConns, s.List)
	}
}

// logIsCounted has a bound from above, too: what is counted is bytes, and little more than the
// data.
func logIsCounted(t *testing.T, server *devdb.Server, dsn string) {
	p := openProbe(t, server.Kind, server.AdminDSN())
	if grown := logGrows(t, p, connect(t, server.Kind, dsn)); grown > 1_000_000 {
		t.Errorf("100,000 bytes of values made %d bytes of log", grown)
	}
}

func statementsAreCounted(t *testing.T, server *devdb.Server, dsn string) {
	if server.Kind == devdb.Postgres { // which has no such counter
		if _, counts, err := openProbe(t, server.Kind, server.AdminDSN()).statements(t.Context()); counts || err != nil {
			t.Errorf("Postgres counts, %v", err)
		}
		return
	}
	p := openProbe(t, server.Kind, server.AdminDSN())
	s := connect(t, server.Kind, dsn)
	onlyTheseTwo(t, p)
	before, counts, err := p.statements(t.Context())
	if err != nil || !counts {
		t.Fatalf("%v, %v", counts, err)
	}
	if again, _, err := p.statements(t.Context()); err != nil || again != before {
		t.Errorf("%d, %v: the probe counts itself: %d before", again, err, before)
	}
	if _, err := p.settings(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run(t, "DO 1", "DO 2", "DO 3")
	if after, _, err := p.statements(t.Context()); err != nil || after != before+3 {
		t.Errorf("%d, %v: want 3 more than %d", after, err, before)
	}
}

// onlyTheseTwo waits until all sessions of before are gone, which takes the server a moment: their
// farewells count as statements.
func onlyTheseTwo(t *testing.T, p probe) {
	t.Helper()
	reserved := 0
	if _, isPostgres := p.(*postgresProbe); isPostgres {
		reserved = 3 // for superusers
	}
	eventually(t, testMaxConns-reserved-2, func() (int, error) { return p.freeConnections(t.Context()) })
}

// optionsChangeNothing asks with options that change how a driver or a session works.
func optionsChangeNothing(t *testing.T, server *devdb.Server, dsn string) {
	odd := dsn + "?parseTime=true&interpolateParams=true&columnsWithAlias=true&clientFoundRows=true&maxAllowedPacket=0" +
		"&autocommit=0&sql_select_limit=1&sql_mode=" + url.QueryEscape("'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'")
	if server.Kind == devdb.Postgres {
		odd = dsn + "&default_query_exec_mode=exec&statement_cache_capacity=0&standard_conforming_strings=off" +
			"&pool_max_conns=1&bytea_output=escape"
	}
	plain, other := openProbe(t, server.Kind, dsn), openProbe(t, server.Kind, odd)
	type answers struct {
		settings string
		free     int
		counts   bool
	}
	ask := func(p probe) (a answers, err error) {
		s, err := p.settings(t.Context())
		if err != nil {
			return a, err
		}
		a.settings = fmt.Sprint(s)
		if a.free, err = p.freeConnections(t.Context()); err != nil {
			return a, err
		}
		if _, err = p.logBytes(t.Context()); err != nil {
			return a, err
		}
		_, a.counts, err = p.statements(t.Context())
		return a, err
	}
	onlyTheseTwo(t, plain)
	want, err := ask(plain)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ask(other); err != nil || got != want {
		t.Errorf("with options %+v, %v; without %+v", got, err, want)
	}
	if server.Kind != devdb.Postgres {
		return
	}
	// What the sessions of a DSN do without is not durable for them.
	s, err := openProbe(t, server.Kind, dsn+"&synchronous_commit=off").settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if ok, _ := s.durable(); ok {
		t.Errorf("sessions that don't wait for their commits pass for durable: %v", s.List)
	}
}

// freeConnectionsAreCounted takes the last one, as a user without privileges, and finds the next
// one refused.
func freeConnectionsAreCounted(t *testing.T, server *devdb.Server) {
	plain := fewConnections(t, server)
	p := openProbe(t, server.Kind, server.AdminDSN())
	free := func() (int, error) { return p.freeConnections(t.Context()) }
	eventually(t, 19, free) // 20, of which the probe has one
	var taken []*session
	for range 19 {
		taken = append(taken, connect(t, server.Kind, plain))
	}
	if n, err := free(); n != 0 || err != nil {
		t.Errorf("all are taken, and %d free, %v", n, err)
	}
	if s, err := dial(t.Context(), server.Kind, plain); !isFull(err) {
		t.Errorf("one more: %v, %v", s, err)
	}
	for _, s := range taken[:5] {
		s.close()
	}
	eventually(t, 5, free)
}

// fewConnections leaves 20 connections to users without privileges, and returns the DSN of one.
func fewConnections(t *testing.T, server *devdb.Server) (plain string) {
	t.Helper()
	admin := connect(t, server.Kind, server.AdminDSN())
	defer admin.close()
	if server.Kind != devdb.Postgres {
		admin.run(t, "SET GLOBAL max_connections = 20", "CREATE USER 'plain'@'127.0.0.1' IDENTIFIED BY 'plain'")
		return fmt.Sprintf("plain:plain@tcp(127.0.0.1:%d)/", server.Port())
	}
	admin.run(t, "CREATE ROLE plain LOGIN PASSWORD 'plain'", "ALTER SYSTEM SET superuser_reserved_connections = 980")
	major, _, _ := strings.Cut(server.Version, ".")
	if major != "14" && major != "15" {
		admin.run(t, "ALTER SYSTEM SET superuser_reserved_connections = 970", "ALTER SYSTEM SET reserved_connections = 10")
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("postgres://plain:plain@127.0.0.1:%d/postgres?sslmode=disable", server.Port())
}

func isFull(err error) bool {
	if pg := new(pgconn.PgError); errors.As(err, &pg) {
		return pg.Code == "53300"
	}
	my := new(mysql.MySQLError)
	return errors.As(err, &my) && my.Number == 1040
}
