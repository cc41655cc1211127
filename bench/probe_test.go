package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

func openProbe(t *testing.T, kind devdb.Kind, dsn string) probe {
	t.Helper()
	p, err := newProbe(t.Context(), kind, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Errorf("close the probe: %v", err)
		}
	})
	return p
}

// session is one connection that statements are sent on as text, whatever the server.
type session struct {
	kind  devdb.Kind
	exec  func(ctx context.Context, query string) error
	close func()
}

func dial(ctx context.Context, kind devdb.Kind, dsn string) (*session, error) {
	if kind == devdb.Postgres {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return nil, err
		}
		return &session{kind, func(ctx context.Context, query string) error {
			_, err := conn.Exec(ctx, query)
			return err
		}, func() { _ = conn.Close(context.Background()) }}, nil
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &session{kind, func(ctx context.Context, query string) error {
		_, err := db.ExecContext(ctx, query)
		return err
	}, func() { _ = db.Close() }}, nil
}

func connect(t *testing.T, kind devdb.Kind, dsn string) *session {
	t.Helper()
	s, err := dial(t.Context(), kind, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func (s *session) run(t *testing.T, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if err := s.exec(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// eventually waits for what a server does after it has answered.
func eventually[T comparable](t *testing.T, want T, get func() (T, error)) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		got, err := get()
		if err == nil && got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: it is %v (%v), want %v", got, err, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestProbeOfAFastServer asks the server that the tests share, which others use meanwhile.
func TestProbeOfAFastServer(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server, dsn := testdb.Server(t, kind), testdb.DSN(t, kind)
			p := openProbe(t, kind, dsn)
			s, err := p.settings(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			completeSettings(t, s)
			if ok, why := s.durable(); server.Dir() != "" && (ok || why == "") {
				t.Errorf("passes for durable, with %v", s.List)
			}
			if n, err := p.freeConnections(t.Context()); err != nil || n <= 0 {
				t.Errorf("%d free connections, %v", n, err)
			}
			logGrows(t, p, connect(t, kind, dsn))
		})
	}
}

func completeSettings(t *testing.T, s settings) {
	t.Helper()
	names := mysqlSettings
	if s.Kind == devdb.Postgres {
		names = postgresSettings
	}
	next := 0
	for _, name := range names {
		if next < len(s.List) && s.List[next].Name == name {
			next++
			continue
		}
		if name != "synchronous_standby_names" {
			t.Errorf("%s is missing or out of its place in %v", name, s.List)
		}
	}
	if n, err := strconv.Atoi(s.get("max_connections")); err != nil || n < 1 {
		t.Errorf("max_connections is %q", s.get("max_connections"))
	}
}

// logGrows commits ten values of 10,000 bytes that don't compress, one by one, and returns by how
// much the log grew.
func logGrows(t *testing.T, p probe, s *session) (grown int64) {
	t.Helper()
	const commits, bytes = 10, 10_000
	column, value := "varbinary(10000)", func(hex string) string { return "x'" + hex + "'" }
	if s.kind == devdb.Postgres {
		column, value = "bytea", func(hex string) string { return `'\x` + hex + `'` }
	}
	s.run(t, "CREATE TABLE logged (v "+column+")")
	last, err := p.logBytes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range commits {
		s.run(t, "INSERT INTO logged VALUES ("+value(randomHex(t, bytes))+")")
		now, err := p.logBytes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if now-last < bytes {
			t.Errorf("a commit of %d bytes moved the log from %d to %d", bytes, last, now)
		}
		grown += now - last
		last = now
	}
	return grown
}

func randomHex(t *testing.T, bytes int) string {
	t.Helper()
	b := make([]byte, bytes)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

func TestDurable(t *testing.T) {
	t.Parallel()
	postgres := map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "wal_sync_method": "fdatasync",
	}
	mysql := map[string]string{
		"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1", "log_bin": "ON", "innodb_doublewrite": "ON",
		"innodb_flush_method": "O_DIRECT",
	}
	for _, tt := range []struct {
		kind    devdb.Kind
		mac     bool
		changed string // a setting, which is also what the reason names
		value   string
		durable bool
	}{
		{devdb.Postgres, false, "", "", true},
		{devdb.Postgres, false, "fsync", "off", false},
		{devdb.Postgres, false, "full_page_writes", "off", false},
		{devdb.Postgres, false, "synchronous_commit", "off", false},
		{devdb.Postgres, false, "synchronous_commit", "local", true},
		{devdb.Postgres, false, "synchronous_commit", "remote_write", true}, // this server's own disk is waited for
		{devdb.Postgres, true, "wal_sync_method", "open_datasync", false},
		{devdb.Postgres, true, "wal_sync_method", "fsync_writethrough", true},
		{devdb.MySQL, false, "", "", true},
		{devdb.MySQL, false, "innodb_flush_log_at_trx_commit", "0", false},
		{devdb.MySQL, false, "innodb_flush_log_at_trx_commit", "2", false},
		{devdb.MySQL, false, "innodb_flush_log_at_trx_commit", "3", false},
		{devdb.MariaDB, false, "innodb_flush_log_at_trx_commit", "3", true},
		{devdb.MySQL, false, "sync_binlog", "0", false},
		{devdb.MySQL, false, "sync_binlog", "100", false},
		{devdb.MySQL, false, "innodb_doublewrite", "OFF", false},
		{devdb.MySQL, false, "innodb_doublewrite", "DETECT_ONLY", false},
		{devdb.MySQL, false, "innodb_doublewrite", "DETECT_AND_RECOVER", true},
		{devdb.MySQL, false, "innodb_flush_method", "nosync", false},
		{devdb.MariaDB, false, "innodb_flush_method", "fsync", true},
	} {
		s := settings{Kind: tt.kind, mac: tt.mac}
		base := mysql
		if tt.kind == devdb.Postgres {
			base = postgres
		}
		for name, value := range base {
			if name == tt.changed {
				value = tt.value
			}
			s.List = append(s.List, setting{name, value})
		}
		ok, why := s.durable()
		if ok != tt.durable || ok != (why == "") || !ok && !strings.HasPrefix(why, tt.changed+" is "+tt.value) {
			t.Errorf("%s with %s=%s: %v, %q", tt.kind, tt.changed, tt.value, ok, why)
		}
	}
	noBinlog := settings{Kind: devdb.MySQL, List: []setting{
		{"innodb_flush_log_at_trx_commit", "1"}, {"sync_binlog", "0"}, {"log_bin", "OFF"}, {"innodb_doublewrite", "ON"},
	}}
	if ok, why := noBinlog.durable(); !ok {
		t.Errorf("without a binary log: %s", why)
	}
}

func TestSizeIsWrittenAsInAnOptionFile(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[string]string{
		"268435456": "256M", "1073741824": "1G", "1610612736": "1536M", "5242881": "5242881", "0": "0", "auto": "auto",
	} {
		if got := size(bytes); got != want {
			t.Errorf("%s bytes are %s, want %s", bytes, got, want)
		}
	}
}

func TestMonitorWithoutAnLSN(t *testing.T) {
	t.Parallel()
	if n, err := lsnOf("---\nLOG\n---\nLog sequence number          20366567\nLog buffer assigned"); n != 20366567 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := lsnOf("no such line"); err == nil {
		t.Error("it was read out of nothing")
	}
}

func TestNoProbeForOtherKinds(t *testing.T) {
	t.Parallel()
	if _, err := newProbe(t.Context(), "redis", "redis://127.0.0.1"); err == nil {
		t.Error("it can be asked")
	}
}
