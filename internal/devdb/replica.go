package devdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// replicaArgs are the arguments of a server of the MySQL family that replicates or is replicated.
func replicaArgs(kind Kind, id int) []string {
	args := []string{"--log-bin=binlog", "--sync-binlog=1", fmt.Sprintf("--server-id=%d", id)}
	if kind == MySQL {
		return append(args, "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
	}
	return args
}

// StartReplica gives a synchronous replica of a server that Start started with Options.Replicated: from now on the
// primary acknowledges a commit once the replica has it. Promote makes a primary of the replica.
func StartReplica(ctx context.Context, primary *Server) (*Server, error) {
	if primary.Kind == Postgres {
		s, err := StartStandby(ctx, primary)
		if err != nil {
			return nil, err
		}
		if err := confirmStandby(ctx, primary); err != nil {
			return nil, errors.Join(fmt.Errorf("have the primary wait for its standby: %w", err), s.Close())
		}
		return s, nil
	}
	if primary.local == nil {
		return nil, primary.notOurs("replicate")
	}
	dir, err := makeFolder()
	if err != nil {
		return nil, fmt.Errorf("start a replica: %w", err)
	}
	l := &local{bin: primary.local.bin, dir: dir, engine: replicaEngine{primary: primary.local}, durable: primary.local.durable}
	s := &Server{Kind: primary.Kind, Source: primary.Source, local: l}
	if err := l.startNew(ctx, s); err != nil {
		return nil, errors.Join(fmt.Errorf("start a replica from %s: %w", s.Source, err), l.close())
	}
	if err := s.follow(ctx, primary); err != nil {
		return nil, errors.Join(fmt.Errorf("follow the primary: %w", err), l.close())
	}
	return s, nil
}

// confirmStandby has commits wait for the standby.
func confirmStandby(ctx context.Context, primary *Server) error {
	return primary.withPostgres(ctx, func(conn *pgx.Conn) error {
		for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return await(ctx, func() (is bool, err error) {
			err = conn.QueryRow(ctx, "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&is)
			return is, err
		})
	})
}

// replicaEngine is a server that starts empty and reads all that its primary has ever logged.
type replicaEngine struct {
	mysqlEngine
	primary *local
}

func (e replicaEngine) initialize(ctx context.Context, l *local) error {
	l.password = e.primary.password // the users are the primary's
	return e.mysqlEngine.initialize(ctx, l)
}

func (e replicaEngine) args(l *local) []string {
	return append(e.mysqlEngine.args(l), replicaArgs(l.bin.kind, 2)...)
}

// follow begins to replicate, and has the primary wait for it at each commit, for up to an hour.
func (s *Server) follow(ctx context.Context, primary *Server) error {
	of := []string{
		"SET GLOBAL rpl_semi_sync_master_wait_no_slave = ON", "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
		"SET GLOBAL rpl_semi_sync_master_timeout = 3600000", "SET GLOBAL rpl_semi_sync_master_enabled = ON",
	}
	by := []string{
		"SET GLOBAL rpl_semi_sync_slave_enabled = ON",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, MASTER_USER = 'dblock', MASTER_PASSWORD = '%s', "+
			"MASTER_USE_GTID = slave_pos", primary.local.port, primary.local.password),
		"START SLAVE",
	}
	if s.Kind == MySQL {
		of = []string{
			"INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
			"SET GLOBAL rpl_semi_sync_source_timeout = 3600000", "SET GLOBAL rpl_semi_sync_source_enabled = ON",
		}
		by = []string{
			"INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'", "SET GLOBAL rpl_semi_sync_replica_enabled = ON",
			fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %d, SOURCE_USER = 'dblock', "+
				"SOURCE_PASSWORD = '%s', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1", primary.local.port, primary.local.password),
			"START REPLICA",
		}
	}
	if err := errors.Join(primary.execMySQL(ctx, of...), s.execMySQL(ctx, by...)); err != nil {
		return err
	}
	return primary.withMySQL(ctx, func(db *sql.DB) error {
		return await(ctx, func() (bool, error) {
			var name, clients string
			err := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%_clients'").Scan(&name, &clients)
			return clients != "0", err
		})
	})
}

// Promote makes a primary of a replica whose primary is gone, once it has applied all that it has received.
func (s *Server) Promote(ctx context.Context) error {
	if s.Kind == Postgres {
		return s.withPostgres(ctx, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SELECT pg_promote(true, 60)")
			return err
		})
	}
	applied := func(db *sql.DB) (bool, error) {
		state, err := replicaState(ctx, db)
		return strings.Contains(strings.ToLower(state), "has read all relay log"), err
	}
	err := s.withMySQL(ctx, func(db *sql.DB) error {
		return await(ctx, func() (bool, error) { return applied(db) })
	})
	if err != nil {
		return err
	}
	if s.Kind == MySQL {
		return s.execMySQL(ctx, "STOP REPLICA", "RESET REPLICA ALL")
	}
	return s.execMySQL(ctx, "STOP SLAVE", "RESET SLAVE ALL")
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

func (s *Server) execMySQL(ctx context.Context, statements ...string) error {
	return s.withMySQL(ctx, func(db *sql.DB) error {
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%.20s: %w", statement, err)
			}
		}
		return nil
	})
}

// await asks until it is so.
func await(ctx context.Context, is func() (bool, error)) error {
	for {
		switch yes, err := is(); {
		case err != nil:
			return err
		case yes:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
