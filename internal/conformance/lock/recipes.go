package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// Recipes are what docs/recipes.md promises of concurrent callers. Each has a control without the
// lock.
type Recipes struct {
	RowLocks

	// OfGroup are the ways in which a transaction keeps others out of a group until it ends.
	OfGroup map[string]LockGroup
}

// LockGroup locks a group.
type LockGroup func(ctx context.Context, tx RowTx, group int64) error

type recipeTests struct{}

// Run runs the suite.
func (r Recipes) Run(t *testing.T) {
	suite.RunEach(t, recipeTests{}, r.env)
	ways := map[string]LockGroup{"Row": func(ctx context.Context, tx RowTx, group int64) error {
		return tx.LockRow(ctx, "team", "id", group, dblock.RowLock{Wait: dblock.WaitAtMost(time.Minute)})
	}}
	maps.Copy(ways, r.OfGroup)
	for name, test := range map[string]func(*testing.T, *rowEnv, LockGroup){
		"TeamsStaySmall": teamsStaySmall, "ASnapshotIsOlderThanTheLock": aSnapshotIsOlderThanTheLock,
	} {
		for way, lock := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				test(t, r.env(t), lock)
			})
		}
	}
}

// env adds the tables of the recipes.
func (r Recipes) env(t *testing.T) *rowEnv {
	v := r.RowLocks.env(t)
	for _, statement := range []string{
		"CREATE TABLE counter (id BIGINT PRIMARY KEY, last BIGINT NOT NULL)", "INSERT INTO counter VALUES (1, 0)",
		"CREATE TABLE invoice (number BIGINT NOT NULL)",
		"CREATE TABLE team (id BIGINT PRIMARY KEY)", "INSERT INTO team VALUES (1)",
		"CREATE TABLE member (team BIGINT NOT NULL)",
	} {
		v.Exec(t, statement)
	}
	return v
}

const recipeCallers = 20

// callers make a call at once, each in a transaction of its own.
func (v *rowEnv) callers(t *testing.T, call func(ctx context.Context, tx RowTx) error) {
	t.Helper()
	ctx := suite.Soon(t)
	suite.Crowd(recipeCallers, func(int) {
		assert.NoError(t, v.within(ctx, func(tx RowTx) error { return call(ctx, tx) }))
	})
}

// callersAndRollbacks make a call twice, each in a transaction of its own; the first one is rolled
// back.
func (v *rowEnv) callersAndRollbacks(t *testing.T, call func(ctx context.Context, tx RowTx) error) {
	t.Helper()
	ctx := suite.Soon(t)
	suite.Crowd(recipeCallers, func(int) {
		for _, end := range []func(RowTx, context.Context) error{RowTx.Rollback, RowTx.Commit} {
			tx, err := v.begin(ctx)
			if assert.NoError(t, err) {
				assert.NoError(t, call(ctx, tx))
				assert.NoError(t, end(tx, ctx))
			}
		}
	})
}

// meet returns a function in which all callers wait for each other.
func meet() func() {
	var all sync.WaitGroup
	all.Add(recipeCallers)
	return func() {
		all.Done()
		all.Wait()
	}
}

func readInt(ctx context.Context, tx RowTx, query string) (int64, error) {
	text, err := tx.Text(ctx, query)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// drawNumber takes the next number, and calls read between its reading and its writing.
func drawNumber(ctx context.Context, tx RowTx, read func()) error {
	last, err := readInt(ctx, tx, "SELECT last FROM counter WHERE id = 1")
	if err != nil {
		return err
	}
	read()
	if err := tx.Exec(ctx, fmt.Sprintf("UPDATE counter SET last = %d WHERE id = 1", last+1)); err != nil {
		return err
	}
	return tx.Exec(ctx, fmt.Sprintf("INSERT INTO invoice VALUES (%d)", last+1))
}

// NumbersHaveNoGaps: numbers have no gaps and no repeats, with every other transaction rolled back.
func (recipeTests) NumbersHaveNoGaps(t *testing.T, v *rowEnv) {
	const rounds, all = 5, 5 * recipeCallers
	draw := func(ctx context.Context, tx RowTx) error {
		if err := tx.LockRow(ctx, "counter", "id", 1, dblock.RowLock{}); err != nil {
			return err
		}
		return drawNumber(ctx, tx, func() {})
	}
	for range rounds {
		v.callersAndRollbacks(t, draw)
	}
	for _, number := range []string{"count(*)", "count(DISTINCT number)", "max(number)"} {
		assert.EqualValues(t, all, v.Count(t, "SELECT "+number+" FROM invoice"), number)
	}
	assert.EqualValues(t, 1, v.Count(t, "SELECT min(number) FROM invoice"))
}

// ControlNumbersComeTwice: without the lock all callers read before the first one writes.
func (recipeTests) ControlNumbersComeTwice(t *testing.T, v *rowEnv) {
	all := meet()
	v.callers(t, func(ctx context.Context, tx RowTx) error { return drawNumber(ctx, tx, all) })
	assert.EqualValues(t, 1, v.Count(t, "SELECT count(DISTINCT number) FROM invoice"))
}

const (
	teamLimit    = 3
	countMembers = "SELECT count(*) FROM member"
)

// join adds a member to a team that is not full, and calls counted before that.
func join(ctx context.Context, tx RowTx, counted func()) (full bool, err error) {
	members, err := readInt(ctx, tx, countMembers)
	if err != nil {
		return false, err
	}
	counted()
	if members >= teamLimit {
		return true, nil
	}
	return false, tx.Exec(ctx, "INSERT INTO member VALUES (1)")
}

func teamsStaySmall(t *testing.T, v *rowEnv, lock LockGroup) {
	var refused atomic.Int64
	v.callers(t, func(ctx context.Context, tx RowTx) error {
		if err := lock(ctx, tx, 1); err != nil {
			return err
		}
		full, err := join(ctx, tx, func() {})
		if full {
			refused.Add(1)
		}
		return err
	})
	assert.EqualValues(t, teamLimit, v.Count(t, countMembers))
	assert.EqualValues(t, recipeCallers-teamLimit, refused.Load())
}

// ControlTeamsGrowTooLarge: without the lock all callers count before the first one joins.
func (recipeTests) ControlTeamsGrowTooLarge(t *testing.T, v *rowEnv) {
	all := meet()
	v.callers(t, func(ctx context.Context, tx RowTx) error { return suite.Second(join(ctx, tx, all)) })
	assert.Greater(t, v.Count(t, countMembers), int64(teamLimit))
}

// aSnapshotIsOlderThanTheLock: at REPEATABLE READ a transaction that has read before counts what
// was there then, though it has the lock. At READ COMMITTED it counts what is there.
func aSnapshotIsOlderThanTheLock(t *testing.T, v *rowEnv, lock LockGroup) {
	ctx := suite.Soon(t)
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelReadCommitted} {
		v.open(t, v.DSN, rowConns, level)
		tx := v.tx(t)
		if v.Postgres() && level == sql.LevelRepeatableRead {
			require.NoError(t, tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
		}
		before := suite.Must(readInt(ctx, tx, countMembers))(t)
		require.NoError(t, v.within(ctx, func(tx RowTx) error {
			return errors.Join(lock(ctx, tx, 1), tx.Exec(ctx, "INSERT INTO member VALUES (1)"))
		}))
		require.NoError(t, lock(ctx, tx, 1))
		after := suite.Must(readInt(ctx, tx, countMembers))(t)
		assert.Equal(t, level == sql.LevelRepeatableRead, after == before, "%v: %d before, %d after", level, before, after)
		require.NoError(t, tx.Rollback(ctx))
	}
}
