package lock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	naiveCallers = 12
	naiveLimit   = 3
	naiveRounds  = 20  // to find it in
	naiveSteps   = 150 // grants in each of them
)

// naive is a lock as it is so often written by hand: each grant is a transaction at READ COMMITTED, of these statements. All must
// change a row, but the first: that is the lock on one row which would make it right.
type naive struct {
	first suite.State
	modes []dblock.Mode // that its callers draw from
	enter map[dblock.Mode][]string
	leave map[dblock.Mode]string
	token map[dblock.Mode]string
}

// naivePermits counts what is held in a sub-select of the statement that grants: others have been granted since its snapshot.
func naivePermits(devdb.Kind) naive {
	return naive{
		first: suite.Permitted{Limit: naiveLimit}, modes: []dblock.Mode{dblock.Permits},
		enter: map[dblock.Mode][]string{dblock.Permits: {fmt.Sprintf(
			"INSERT INTO naive_holder SELECT %%[1]d, 0 FROM naive WHERE (SELECT count(*) FROM naive_holder) < %d", naiveLimit)}},
		leave: map[dblock.Mode]string{dblock.Permits: "DELETE FROM naive_holder WHERE id = %d"},
		token: map[dblock.Mode]string{dblock.Permits: "SELECT token FROM naive_holder WHERE id = %d"},
	}
}

// naiveWriters count readers in a sub-select of the statement that grants. It may wait for a reader's lock on the
// row, and then goes on with the count from before. On MySQL such a count would be a new one, as it locks; there it
// stands in a statement of its own.
func naiveWriters(kind devdb.Kind) naive {
	n := naiveReads("WHERE holder IS NULL FOR SHARE")
	n.enter[dblock.Exclusive] = []string{
		"UPDATE naive SET holder = %[1]d, token = token + 2 WHERE holder IS NULL AND (SELECT count(*) FROM naive_holder) = 0",
	}
	if kind != devdb.Postgres {
		n.enter[dblock.Shared] = []string{naiveReader + "WHERE holder IS NULL LOCK IN SHARE MODE"}
		n.enter[dblock.Exclusive] = []string{
			"INSERT INTO naive_writer SELECT %[1]d FROM naive WHERE (SELECT count(*) FROM naive_holder) = 0",
			"UPDATE naive SET holder = %[1]d, token = token + 2 WHERE holder IS NULL",
		}
	}
	return n
}

// heedlessReaders don't look whether somebody has the key alone.
func heedlessReaders(kind devdb.Kind) naive {
	n := naiveWriters(kind)
	n.enter[dblock.Shared] = []string{naiveReader}
	return n
}

const naiveReader = "INSERT INTO naive_holder SELECT %[1]d, token + 1 FROM naive "

func naiveReads(where string) naive {
	return naive{
		first: suite.GuardedValue{Exclusive: true}, modes: []dblock.Mode{dblock.Shared, dblock.Shared, dblock.Exclusive},
		enter: map[dblock.Mode][]string{dblock.Shared: {naiveReader + where}},
		leave: map[dblock.Mode]string{
			dblock.Shared: "DELETE FROM naive_holder WHERE id = %d", dblock.Exclusive: "UPDATE naive SET holder = NULL WHERE holder = %d",
		},
		token: map[dblock.Mode]string{
			dblock.Shared: "SELECT token FROM naive_holder WHERE id = %d", dblock.Exclusive: "SELECT token FROM naive WHERE holder = %d",
		},
	}
}

// controlCountsInASubSelect, and the two below, are the controls of the models: locks that are wrong have histories that are.
func controlCountsInASubSelect(t *testing.T, v *env) { v.isWrong(t, naivePermits(v.e.Kind), true) }

func controlWriterCountsInASubSelect(t *testing.T, v *env) {
	v.isWrong(t, naiveWriters(v.e.Kind), true)
}

func controlReadersDontLook(t *testing.T, v *env) { v.isWrong(t, heedlessReaders(v.e.Kind), false) }

// isWrong uses the lock until its history is wrong. With a lock on one row first it must be right, if that mends it:
// then it is the lock that is wrong, and not how it is used here.
func (v *env) isWrong(t *testing.T, n naive, mended bool) {
	v.exec(t, "CREATE TABLE naive (holder BIGINT, token BIGINT NOT NULL, locked BIGINT)")
	v.exec(t, "INSERT INTO naive VALUES (NULL, 2, 0)")
	v.exec(t, "CREATE TABLE naive_holder (id BIGINT PRIMARY KEY, token BIGINT NOT NULL)")
	v.exec(t, "CREATE TABLE naive_writer (id BIGINT PRIMARY KEY)")
	if mended {
		n.mend()
		h := v.useNaively(t, n)
		if t.Logf("mended: %v", h); h.Count(suite.Granted) < naiveSteps || !h.IsRight(t, n.first) {
			t.Errorf("mended it is wrong, too: this shows nothing:\n%s", h.Wrong(n.first))
		}
		n.unmend()
	}
	for round := range naiveRounds {
		h := v.useNaively(t, n)
		if !h.IsRight(t, n.first) {
			t.Logf("wrong in round %d: %v", round, h)
			return
		}
	}
	t.Error("no history was wrong: the tests with the protection show nothing")
}

// mend has each grant lock one row first.
func (n naive) mend() {
	for mode, statements := range n.enter {
		n.enter[mode] = append([]string{"UPDATE naive SET locked = %[1]d"}, statements...)
	}
}

func (n naive) unmend() {
	for mode, statements := range n.enter {
		n.enter[mode] = statements[1:]
	}
}

// useNaively has callers ask again and again, all at once.
func (v *env) useNaively(t *testing.T, n naive) *suite.History {
	t.Helper()
	h := &suite.History{Began: time.Now()}
	var grants, ids atomic.Int64
	ctx := suite.Soon(t)
	var callers sync.WaitGroup
	ids.Store(time.Now().UnixNano()) // others than in the round before
	for client := range naiveCallers {
		callers.Go(func() {
			for grants.Load() < naiveSteps && ctx.Err() == nil {
				s := suite.Step{What: suite.Granted, Key: "naive", Mode: n.modes[rand.N(len(n.modes))], Permits: 1, Limit: naiveLimit}
				if v.once(ctx, t, h, client, n, s, ids.Add(1)) {
					grants.Add(1)
				}
			}
		})
	}
	callers.Wait()
	return h
}

// once is one use of it.
func (v *env) once(ctx context.Context, t *testing.T, h *suite.History, client int, n naive, s suite.Step, id int64) (got bool) {
	asked := h.Now()
	var err error
	if s.Token, err = v.enterNaively(ctx, n, s.Mode, id); err != nil {
		time.Sleep(rand.N(time.Millisecond))
		return false
	}
	h.Note(client, asked, h.Now(), s)
	time.Sleep(rand.N(3 * time.Millisecond))
	leaves := h.Now()
	for gone := int64(0); gone == 0; { // a deadlock with others may undo it
		if ctx.Err() != nil {
			t.Error("what is held can't be given back")
			return false
		}
		if res, err := v.db.ExecContext(ctx, fmt.Sprintf(n.leave[s.Mode], id)); err == nil {
			gone, _ = res.RowsAffected()
		}
	}
	s.What = suite.Left
	h.Note(client, leaves, h.Now(), s)
	return true
}

// enterNaively fails where somebody else has the lock.
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
