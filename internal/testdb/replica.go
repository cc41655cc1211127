package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Standby is a hot standby of what Own gave for Postgres. It lives as long as the test.
func Standby(tb testing.TB, primary *devdb.Server) *devdb.Server {
	tb.Helper()
	return alive(tb, func(ctx context.Context) (*devdb.Server, error) { return devdb.StartReplica(ctx, primary) })
}

// Replica is a synchronous replica of what Own gave for Postgres: each commit waits for it. It
// lives as long as the test.
func Replica(tb testing.TB, primary *devdb.Server) *devdb.Server {
	tb.Helper()
	return alive(tb, func(ctx context.Context) (*devdb.Server, error) { return StartReplica(ctx, primary) })
}

// StartReplica starts a synchronous replica of a server that was started with
// devdb.Options.Replicated: from now on the primary acknowledges a commit once the replica has it.
// Promote makes a primary of the replica.
func StartReplica(ctx context.Context, primary *devdb.Server) (*devdb.Server, error) {
	s, err := devdb.StartReplica(ctx, primary)
	if err != nil {
		return nil, err
	}
	follow := followMySQL
	if s.Kind == devdb.Postgres {
		follow = confirmPostgres
	}
	if err := follow(ctx, primary, s); err != nil {
		return nil, errors.Join(fmt.Errorf("follow the primary: %w", err), s.Close())
	}
	return s, nil
}

// confirmPostgres has commits wait for the standby.
func confirmPostgres(ctx context.Context, primary, _ *devdb.Server) error {
	if err := execAdmin(ctx, primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	return awaitAdmin(ctx, primary, func(db *sql.DB) (is bool, err error) {
		err = db.QueryRowContext(ctx, "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&is)
		return is, err
	})
}

// followMySQL begins to replicate, and has the primary wait for the replica at each commit, for up
// to an hour.
func followMySQL(ctx context.Context, primary, s *devdb.Server) error {
	config, err := mysql.ParseDSN(primary.AdminDSN())
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(config.Addr)
	if err != nil {
		return err
	}
	of := []string{
		"SET GLOBAL rpl_semi_sync_master_wait_no_slave = ON", "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
		"SET GLOBAL rpl_semi_sync_master_timeout = 3600000", "SET GLOBAL rpl_semi_sync_master_enabled = ON",
	}
	by := []string{
		"SET GLOBAL rpl_semi_sync_slave_enabled = ON",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %s, MASTER_USER = '%s', MASTER_PASSWORD = '%s', "+
			"MASTER_USE_GTID = slave_pos", port, config.User, config.Passwd),
		"START SLAVE",
	}
	if s.Kind == devdb.MySQL {
		of = []string{
			"INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
			"SET GLOBAL rpl_semi_sync_source_timeout = 3600000", "SET GLOBAL rpl_semi_sync_source_enabled = ON",
		}
		by = []string{
			"INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'", "SET GLOBAL rpl_semi_sync_replica_enabled = ON",
			fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %s, SOURCE_USER = '%s', "+
				"SOURCE_PASSWORD = '%s', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1", port, config.User, config.Passwd),
			"START REPLICA",
		}
	}
	if err := errors.Join(execAdmin(ctx, primary, of...), execAdmin(ctx, s, by...)); err != nil {
		return err
	}
	return awaitAdmin(ctx, primary, func(db *sql.DB) (bool, error) {
		var name, clients string
		err := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%_clients'").Scan(&name, &clients)
		return clients != "0", err
	})
}

// Promote makes a primary of a replica whose primary is gone, once it has applied all that it has
// received.
func Promote(ctx context.Context, s *devdb.Server) error {
	if s.Kind == devdb.Postgres {
		return execAdmin(ctx, s, "SELECT pg_promote(true, 60)")
	}
	err := awaitAdmin(ctx, s, func(db *sql.DB) (bool, error) {
		state, err := replicaState(ctx, db)
		return strings.Contains(strings.ToLower(state), "has read all relay log"), err
	})
	if err != nil {
		return err
	}
	if s.Kind == devdb.MySQL {
		return execAdmin(ctx, s, "STOP REPLICA", "RESET REPLICA ALL")
	}
	return execAdmin(ctx, s, "STOP SLAVE", "RESET SLAVE ALL")
}

// replicaState is what the thread does that applies the log.
func replicaState(ctx context.Context, db *sql.DB) (state string, err error) {
	rows, err := db.QueryContext(ctx, "SHOW REPLICA STATUS")
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	if !rows.Next() {
		return "", errors.Join(errors.New("this server is no replica"), rows.Err())
	}
	at := slices.IndexFunc(columns, func(name string) bool { return strings.HasSuffix(name, "_SQL_Running_State") })
	if at < 0 {
		return "", fmt.Errorf("SHOW REPLICA STATUS has no state of the thread that applies the log: %q", columns)
	}
	err = rows.Scan(into...)
	return values[at].String, err
}

// execAdmin runs statements as the administrator.
func execAdmin(ctx context.Context, s *devdb.Server, statements ...string) error {
	db, err := openPlain(s.Kind, s.AdminDSN())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.20s: %w", statement, err)
		}
	}
	return nil
}

// awaitAdmin asks as the administrator until it is so.
func awaitAdmin(ctx context.Context, s *devdb.Server, is func(*sql.DB) (bool, error)) error {
	db, err := openPlain(s.Kind, s.AdminDSN())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for {
		if yes, err := is(db); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
