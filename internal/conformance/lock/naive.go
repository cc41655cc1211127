package lock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	naiveCallers = 12
	naiveLimit   = 3
	naiveRounds  = 20  // in one of which the history must be wrong
	naiveSteps   = 150 // grants in each of them
)

// naive is a lock that is written by hand. A grant is a transaction at READ COMMITTED of the statements
// of enter, each of which must change a row.
type naive struct {
	first        suite.State
	modes        []dblock.Mode // of its callers
	enter        map[dblock.Mode][]string
	leave, token map[dblock.Mode]string
}

// naivePermits counts what is held in a sub-select of the statement that grants. Other permits have
// been granted since its snapshot.
func naivePermits() naive {
	grant := fmt.Sprintf("INSERT INTO naive_holder SELECT %%[1]d, 0 FROM naive WHERE (%s) < %d", naiveHolders, naiveLimit)
	return naive{
		first: suite.Permitted{Limit: naiveLimit}, modes: []dblock.Mode{dblock.Permits},
		enter: map[dblock.Mode][]string{dblock.Permits: {grant}},
		leave: map[dblock.Mode]string{dblock.Permits: "DELETE FROM naive_holder WHERE id = %d"},
		token: map[dblock.Mode]string{dblock.Permits: "SELECT token FROM naive_holder WHERE id = %d"},
	}
}

const (
	naiveReader  = "INSERT INTO naive_holder SELECT %[1]d, token + 1 FROM naive "
	naiveHolders = "SELECT count(*) FROM naive_holder"
)

// naiveWriters count readers in a sub-select of the statement that grants. The statement may wait for
// a reader's lock on the row, and goes on with the count from before. On MySQL and MariaDB such a
// count locks and is a new one, so that it is a statement of its own.
func naiveWriters(kind devdb.Kind) naive {
	n := naive{
		first: suite.GuardedValue{Exclusive: true}, modes: []dblock.Mode{dblock.Shared, dblock.Shared, dblock.Exclusive},
		enter: map[dblock.Mode][]string{
			dblock.Shared: {naiveReader + "WHERE holder IS NULL FOR SHARE"},
			dblock.Exclusive: {"UPDATE naive SET holder = %[1]d, token = token + 2 WHERE holder IS NULL AND " +
				"(" + naiveHolders + ") = 0"},
		},
		leave: map[dblock.Mode]string{
			dblock.Shared:    "DELETE FROM naive_holder WHERE id = %d",
			dblock.Exclusive: "UPDATE naive SET holder = NULL WHERE holder = %d",
		},
		token: map[dblock.Mode]string{
			dblock.Shared:    "SELECT token FROM naive_holder WHERE id = %d",
			dblock.Exclusive: "SELECT token FROM naive WHERE holder = %d",
		},
	}
	if kind != devdb.Postgres {
		n.enter[dblock.Shared] = []string{naiveReader + "WHERE holder IS NULL LOCK IN SHARE MODE"}
		n.enter[dblock.Exclusive] = []string{
			"INSERT INTO naive_writer SELECT %[1]d FROM naive WHERE (" + naiveHolders + ") = 0",
			"UPDATE naive SET holder = %[1]d, token = token + 2 WHERE holder IS NULL",
		}
	}
	return n
}

// The controls of the models: locks that are wrong have histories that are wrong.
func controlCountsInASubSelect(t *testing.T, v *env) { v.isWrong(t, naivePermits(), true) }

func controlWriterCountsInASubSelect(t *testing.T, v *env) {
	v.isWrong(t, naiveWriters(v.e.Kind), true)
}

func controlReadersDontLook(t *testing.T, v *env) {
	n := naiveWriters(v.e.Kind)
	n.enter[dblock.Shared] = []string{naiveReader}
	v.isWrong(t, n, false)
}

// isWrong uses the lock until its history is wrong. If mends is set, a lock on one row at first makes
// it right: then the lock is wrong, and not its use in this test.
func (v *env) isWrong(t *testing.T, n naive, mends bool) {
	t.Helper()
	v.exec(t, "CREATE TABLE naive (holder BIGINT, token BIGINT NOT NULL, locked BIGINT)")
	v.exec(t, "INSERT INTO naive VALUES (NULL, 2, 0)")
	v.exec(t, "CREATE TABLE naive_holder (id BIGINT PRIMARY KEY, token BIGINT NOT NULL)")
	v.exec(t, "CREATE TABLE naive_writer (id BIGINT PRIMARY KEY)")
	if mends {
		mended := n
		mended.enter = map[dblock.Mode][]string{}
		for mode, statements := range n.enter {
			mended.enter[mode] = append([]string{"UPDATE naive SET locked = %[1]d"}, statements...)
		}
		h := v.useNaively(t, mended)
		assert.GreaterOrEqual(t, h.Count(suite.Granted), naiveSteps)
		assert.True(t, h.IsRight(t, n.first), "with the lock on one row it is wrong, too: %s", h.Wrong(n.first))
	}
	for range naiveRounds {
		if !v.useNaively(t, n).IsRight(t, n.first) {
			return
		}
	}
	t.Error("no history was wrong: the tests with the protection show nothing")
}

// useNaively has callers acquire and release the lock at once.
func (v *env) useNaively(t *testing.T, n naive) *suite.History {
	t.Helper()
	h := &suite.History{Began: time.Now()}
	var grants, ids atomic.Int64
	ids.Store(time.Now().UnixNano()) // others than in the round before
	ctx := suite.Soon(t)
	suite.Crowd(naiveCallers, func(client int) {
		for grants.Load() < naiveSteps && ctx.Err() == nil {
			mode := n.modes[rand.N(len(n.modes))]
			s := suite.Step{What: suite.Granted, Key: "naive", Mode: mode, Permits: 1, Limit: naiveLimit}
			id, asked := ids.Add(1), h.Now()
			var err error
			if s.Token, err = v.enterNaively(ctx, n, mode, id); err != nil {
				time.Sleep(rand.N(time.Millisecond))
				continue
			}
			grants.Add(1)
			h.Note(client, asked, h.Now(), s)
			time.Sleep(rand.N(3 * time.Millisecond))
			leaves := h.Now()
			if !assert.NoError(t, v.leaveNaively(ctx, fmt.Sprintf(n.leave[mode], id))) {
				return
			}
			s.What = suite.Left
			h.Note(client, leaves, h.Now(), s)
		}
	})
	return h
}

// enterNaively fails if another caller keeps this one out.
func (v *env) enterNaively(ctx context.Context, n naive, mode dblock.Mode, id int64) (token int64, err error) {
	tx, err := v.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range n.enter[mode] {
		res, err := tx.ExecContext(ctx, fmt.Sprintf(statement, id))
		if err != nil {
			return 0, err
		}
		if rows, err := res.RowsAffected(); err != nil || rows != 1 {
			return 0, fmt.Errorf("%d rows: %w", rows, err)
		}
	}
	if err := tx.QueryRowContext(ctx, fmt.Sprintf(n.token[mode], id)).Scan(&token); err != nil {
		return 0, err
	}
	return token, tx.Commit()
}

// leaveNaively repeats the statement, which a deadlock may undo.
func (v *env) leaveNaively(ctx context.Context, statement string) error {
	for {
		if res, err := v.db.ExecContext(ctx, statement); err == nil {
			if rows, err := res.RowsAffected(); rows > 0 || err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
