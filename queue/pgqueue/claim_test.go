package pgqueue

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

func TestSpans(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 1, 2, 3, 4, 5, 6000, time.UTC)
	var never time.Time
	for name, c := range map[string]struct {
		from []driver.ReadyCursor
		want spansOf
	}{
		"none": {nil, spansOf{[]int16{math.MinInt16}, []time.Time{never}, []int16{math.MaxInt16}}},
		"one":  {[]driver.ReadyCursor{{Priority: 0, ReadyAt: at}}, spansOf{[]int16{math.MinInt16, 0, 1}, []time.Time{never, at, never}, []int16{-1, 0, math.MaxInt16}}},
		"neighbours": {[]driver.ReadyCursor{{Priority: 3, ReadyAt: at}, {Priority: 4, ReadyAt: at}},
			spansOf{[]int16{math.MinInt16, 3, 4, 5}, []time.Time{never, at, at, never}, []int16{2, 3, 4, math.MaxInt16}}},
		"both ends": {[]driver.ReadyCursor{{Priority: math.MinInt16, ReadyAt: at}, {Priority: math.MaxInt16, ReadyAt: at}},
			spansOf{[]int16{math.MinInt16, math.MinInt16 + 1, math.MaxInt16}, []time.Time{at, never, at}, []int16{math.MinInt16, math.MaxInt16 - 1, math.MaxInt16}}},
	} {
		got := spans(c.from)
		if !slices.Equal(got.priorities, c.want.priorities) || !slices.Equal(got.times, c.want.times) || !slices.Equal(got.lasts, c.want.lasts) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestClaimPassesNothingOver: while an old snapshot keeps the server from cleaning up, a claim that
// begins at a mark reads few pages, however many jobs were taken before. The control: one that
// begins at the start reads them all.
func TestClaimPassesNothingOver(t *testing.T) {
	t.Parallel()
	host := testdb.MigratedPostgres(t)
	ctx := t.Context()
	d, err := open(ctx, host, "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	old, err := host.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(ctx) }()
	const member = "00000000-0000-0000-0000-000000000001"
	for _, statement := range []string{
		`INSERT INTO dblock_member (member_id, label, expires_at) VALUES ('` + member + `', '', clock_timestamp() + interval '1 hour')`,
		`INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id)
		 SELECT 'default', 0, timestamptz '2025-01-01 00:00:00Z' + n * interval '1 second', gen_random_uuid() FROM generate_series(1, 200000) n`,
	} {
		if _, err := host.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := old.Exec(ctx, "SELECT 1 FROM dblock_queue_ready LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Exec(ctx, "DELETE FROM dblock_queue_ready WHERE ready_at <= timestamptz '2025-01-01 00:00:00Z' + 190000 * interval '1 second'"); err != nil {
		t.Fatal(err)
	}

	mark := time.Date(2025, 1, 1, 0, 0, 190000, 0, time.UTC)
	pages := func(from []driver.ReadyCursor) int {
		s := spans(from)
		var plan string
		err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
			defer func() { _, _ = tx.Exec(ctx, "ROLLBACK TO SAVEPOINT before; DEALLOCATE suite") }()
			if _, err := tx.Exec(ctx, "PREPARE suite AS "+d.SQL(pgdb.ClaimJobs)+"; SAVEPOINT before", pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			var times []string
			for _, at := range s.times {
				times = append(times, at.Format("2006-01-02 15:04:05Z"))
			}
			list := func(v any) string { return strings.ReplaceAll(strings.Trim(fmt.Sprint(v), "[]"), " ", ",") }
			args := fmt.Sprintf("2000, '{%s}', '{%s}', '{%s}', 'default', '{}', '%s', 1, 100, '%s'", list(s.priorities), strings.Join(times, ","), list(s.lasts), member, member)
			return tx.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE suite("+args+")", pgx.QueryExecModeSimpleProtocol).Scan(&plan)
		})
		if err != nil {
			t.Fatal(err)
		}
		var parsed []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal([]byte(plan), &parsed); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, `"LockRows"`) {
			t.Fatalf("nothing was claimed: %s", plan)
		}
		return parsed[0].Plan.Hit + parsed[0].Plan.Read
	}
	all, some := pages(nil), pages([]driver.ReadyCursor{{Priority: 0, ReadyAt: mark}})
	t.Logf("from the start %d pages, from a mark %d", all, some)
	if some > 1000 || all < 5*some {
		t.Errorf("a claim of 100 jobs reads %d pages from a mark, and %d from the start", some, all)
	}
}
