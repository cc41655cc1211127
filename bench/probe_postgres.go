package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/devdb"
)

var postgresSettings = []string{
	"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "synchronous_standby_names",
	"shared_buffers", "max_connections", "max_wal_size",
}

type postgresProbe struct{ conn *pgx.Conn }

func newPostgresProbe(ctx context.Context, dsn string) (probe, error) {
	cfg, err := devdb.ParsePostgres(dsn)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, err
	}
	return &postgresProbe{conn}, nil
}

func (p *postgresProbe) close() error { return p.conn.Close(context.Background()) }

// ask goes below pgx, whose DSN has options for how a query is sent.
func (p *postgresProbe) ask(ctx context.Context, query string) ([][][]byte, error) {
	results, err := p.conn.PgConn().Exec(ctx, query).ReadAll()
	if err != nil {
		return nil, err
	}
	return results[0].Rows, nil
}

func (p *postgresProbe) number(ctx context.Context, query string) (int64, error) {
	rows, err := p.ask(ctx, query)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(rows[0][0]), 10, 64)
}

func (p *postgresProbe) settings(ctx context.Context) (settings, error) {
	list := settings{Kind: devdb.Postgres}
	rows, err := p.ask(ctx, "SELECT s.name, current_setting(s.name), version() FROM pg_settings s"+
		" WHERE s.name IN ('"+strings.Join(postgresSettings, "', '")+"')")
	if err != nil {
		return list, err
	}
	for _, row := range rows {
		name, value := string(row[0]), string(row[1])
		if value != "" { // no standby is named
			list.List = append(list.List, setting{name, value})
		}
		list.mac = strings.Contains(string(row[2]), "-apple-darwin")
	}
	inOrder(list.List, postgresSettings)
	return list, nil
}

func inOrder(list []setting, names []string) {
	slices.SortFunc(list, func(a, b setting) int {
		return slices.Index(names, a.Name) - slices.Index(names, b.Name)
	})
}

// freeConnections counts a session that this user may not look into as a client's: there are a few
// that aren't, and too few free ones is the better mistake.
func (p *postgresProbe) freeConnections(ctx context.Context) (int, error) {
	n, err := p.number(ctx, `SELECT current_setting('max_connections')::int
		- current_setting('superuser_reserved_connections')::int
		- coalesce(current_setting('reserved_connections', true)::int, 0) -- since 16
		- count(*) FROM pg_stat_activity a WHERE coalesce(a.backend_type, 'client backend') = 'client backend'`)
	return int(max(n, 0)), err
}

func (p *postgresProbe) logBytes(ctx context.Context) (int64, error) {
	n, err := p.number(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
	if err != nil {
		return 0, fmt.Errorf("the position in the WAL: %w", err)
	}
	return n, nil
}

// statements: Postgres counts transactions, and statements only with an extension.
func (p *postgresProbe) statements(context.Context) (int64, bool, error) { return 0, false, nil }
