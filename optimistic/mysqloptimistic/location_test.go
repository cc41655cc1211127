package mysqloptimistic_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// TestTimesInTheDriversLocation: times that a query has read by the driver are those that Columns
// compares, whatever loc is. A row that has moved by the offset of loc is a conflict.
func TestTimesInTheDriversLocation(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		suite.Each(t, map[string]string{
			"default": "", "UTC": "parseTime=true&loc=UTC", "Berlin": "parseTime=true&loc=Europe%2FBerlin",
			"New York": "parseTime=true&loc=America%2FNew_York", "inline": "parseTime=true&loc=Asia%2FKolkata&interpolateParams=true",
			"London, as text": "loc=Europe%2FLondon",
		}, func(t *testing.T, options string) { timesIn(t, testdb.DSN(t, kind), options) })
	}
}

func timesIn(t *testing.T, dsn, options string) {
	ctx := t.Context()
	if options != "" {
		dsn = suite.AppendQuery(dsn, options)
	}
	db := suite.Must(sql.Open("mysql", dsn))(t)
	t.Cleanup(func() { _ = db.Close() })
	_, err := db.ExecContext(ctx, "CREATE TABLE meeting (id INT PRIMARY KEY, starts DATETIME(6), day DATE, title TEXT)")
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "INSERT INTO meeting VALUES (1, '2026-07-01 12:00:00.123456', '2026-07-01', 'first')")
	require.NoError(t, err)
	table := suite.Must(mysqloptimistic.NewTable("meeting", "id", optimistic.Columns("starts", "day")))(t)
	read := func() optimistic.Values {
		var starts, day any
		require.NoError(t, db.QueryRowContext(ctx, "SELECT starts, day FROM meeting").Scan(&starts, &day))
		return optimistic.Values{"starts": starts, "day": day}
	}
	seen := read()
	next, err := table.Update(ctx, db, 1, seen, optimistic.Set{"title": "second"})
	if options == "loc=Europe%2FLondon" {
		assert.ErrorIs(t, err, dblock.ErrInvalid)
		assert.ErrorContains(t, err, "parseTime")
		return
	}
	require.NoError(t, err, "an unchanged row")
	next, err = table.Update(ctx, db, 1, next, optimistic.Set{"starts": time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC)})
	require.NoError(t, err)
	_, err = table.Update(ctx, db, 1, next, optimistic.Set{"title": "third"})
	require.NoError(t, err, "with the time that was set")
	version, err := table.Version(ctx, db, 1)
	require.NoError(t, err)
	_, err = table.Update(ctx, db, 1, version, optimistic.Set{"title": "fourth"})
	require.NoError(t, err, "with the version that was read")
	seen = read()
	for _, by := range []string{"2 HOUR", "-2 HOUR", "4 HOUR", "330 MINUTE", "1 MICROSECOND", "1 DAY"} {
		_, err = db.ExecContext(ctx, "UPDATE meeting SET starts = starts + INTERVAL "+by)
		require.NoError(t, err)
		_, err = table.Update(ctx, db, 1, seen, optimistic.Set{"title": "lost"})
		assert.ErrorIs(t, err, optimistic.ErrStale, by)
		_, err = db.ExecContext(ctx, "UPDATE meeting SET starts = starts - INTERVAL "+by)
		require.NoError(t, err)
	}
	_, err = table.Update(ctx, db, 1, seen, optimistic.Set{"title": "fifth"})
	assert.NoError(t, err)
}
