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

// naive is a lock that is written by hand, with statements for each mode. A grant is a transaction
// at READ COMMITTED, each of whose statements must change a row.
type naive struct {
	first suite.State
	modes []dblock.Mode // of its callers
	of    map[dblock.Mode]naiveMode
}

type naiveMode struct {
	enter        []string
	token, leave string
}

const (
	naiveHolders = "(SELECT count(*) FROM naive_holder)"
	naiveReader  = "INSERT INTO naive_holder SELECT %[1]d, token + 1 FROM naive "
	naiveWriter  = "UPDATE naive SET holder = %[1]d, token = token + 2 WHERE holder IS NULL"
	naiveToken   = "SELECT token FROM naive_holder WHERE id = %d"
	naiveLeave   = "DELETE FROM naive_holder WHERE id = %d"
)

// naivePermits counts what is held in a sub-select of the statement that grants. Other permits have
// been granted since its snapshot.
func naivePermits() naive {
	grant := fmt.Sprintf("INSERT INTO naive_holder SELECT %%[1]d, 0 FROM naive WHERE %s < %d", naiveHolders, naiveLimit)
	return naive{suite.Permitted{Limit: naiveLimit}, []dblock.Mode{dblock.Permits}, map[dblock.Mode]naiveMode{
		dblock.Permits: {[]string{grant}, naiveToken, naiveLeave},
	}}
}

// naiveWriters count readers in a sub-select of the statement that grants. The statement may wait
// for a reader's lock on the row, and goes on with the count from before. On MySQL and MariaDB such
// a count locks and is a new one, so that it is a statement of its own.
func naiveWriters(kind devdb.Kind) naive {
	reader, writer := naiveReader+"WHERE holder IS NULL FOR SHARE", []string{naiveWriter + " AND " + naiveHolders + " = 0"}
	if kind != devdb.Postgres {
		reader = naiveReader + "WHERE holder IS NULL LOCK IN SHARE MODE"
		writer = []string{"INSERT INTO naive_writer SELECT %[1]d FROM naive WHERE " + naiveHolders + " = 0", naiveWriter}
	}
	return naiveReaders(reader, writer)
}

func naiveReaders(reader string, writer []string) naive {
	modes := []dblock.Mode{dblock.Shared, dblock.Shared, dblock.Exclusive}
	return naive{suite.GuardedValue{Exclusive: true}, modes, map[dblock.Mode]naiveMode{
		dblock.Shared: {[]string{reader}, naiveToken, naiveLeave},
		dblock.Exclusive: {writer, "SELECT token FROM naive WHERE holder = %d",
			"UPDATE naive SET holder = NULL WHERE holder = %d"},
	}}
}

// The controls of the models: locks that are wrong have histories that are wrong.
func controlCountsInASubSelect(t *testing.T, v *env) { v.isWrong(t, naivePermits(), true) }

func controlWriterCountsInASubSelect(t *testing.T, v *env) {
	v.isWrong(t, naiveWriters(v.Kind), true)
}

func controlReadersDontLook(t *testing.T, v *env) {
	v.isWrong(t, naiveReaders(naiveReader, naiveWriters(v.Kind).of[dblock.Exclusive].enter), false)
}

// isWrong uses the lock until its history is wrong. If mends is set, a lock on one row at first
// makes it right: then the lock is wrong, and not its use in this test.
func (v *env) isWrong(t *testing.T, n naive, mends bool) {
	t.Helper()
	v.Exec(t, "CREATE TABLE naive (holder BIGINT, token BIGINT NOT NULL, locked BIGINT)")
	v.Exec(t, "INSERT INTO naive VALUES (NULL, 2, 0)")
	v.Exec(t, "CREATE TABLE naive_holder (id BIGINT PRIMARY KEY, token BIGINT NOT NULL)")
	v.Exec(t, "CREATE TABLE naive_writer (id BIGINT PRIMARY KEY)")
	if mends {
		mended := naive{n.first, n.modes, map[dblock.Mode]naiveMode{}}
		for mode, m := range n.of {
			mended.of[mode] = naiveMode{append([]string{"UPDATE naive SET locked = %[1]d"}, m.enter...), m.token, m.leave}
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
			if s.Token, err = v.enterNaively(ctx, n.of[mode], id); err != nil {
				time.Sleep(rand.N(time.Millisecond))
				continue
			}
			grants.Add(1)
			h.Note(client, asked, h.Now(), s)
			time.Sleep(rand.N(3 * time.Millisecond))
			leaves := h.Now()
			if !assert.NoError(t, v.leaveNaively(ctx, fmt.Sprintf(n.of[mode].leave, id))) {
				return
			}
			s.What = suite.Left
			h.Note(client, leaves, h.Now(), s)
		}
	})
	return h
}

// enterNaively fails if another caller keeps this one out.
func (v *env) enterNaively(ctx context.Context, m naiveMode, id int64) (token int64, err error) {
	tx, err := v.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range m.enter {
		res, err := tx.ExecContext(ctx, fmt.Sprintf(statement, id))
		if err != nil {
			return 0, err
		}
		if rows, err := res.RowsAffected(); err != nil || rows != 1 {
			return 0, fmt.Errorf("%d rows: %w", rows, err)
		}
	}
	if err := tx.QueryRowContext(ctx, fmt.Sprintf(m.token, id)).Scan(&token); err != nil {
		return 0, err
	}
	return token, tx.Commit()
}

// leaveNaively repeats the statement, which a deadlock may undo.
func (v *env) leaveNaively(ctx context.Context, statement string) error {
	for {
		if res, err := v.ExecContext(ctx, statement); err == nil {
			if rows, err := res.RowsAffected(); rows > 0 || err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
