package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// crashCaller uses a key once, in one of the processes that go through crashes.
type crashCaller struct {
	*crashes
	ctx    context.Context
	t      *testing.T
	h      *suite.History
	client int
	l      Leases
	key    string
}

func (u *crashCaller) note(w suite.What, from, to int64, s suite.Step) {
	s.What = w
	u.h.Note(u.client, from, to, s)
}

// acquire returns nil if there is no lock.
func (u *crashCaller) acquire(patience time.Duration, opts ...dblock.Option) *dblock.Lock {
	ctx, cancel := context.WithTimeout(u.ctx, patience)
	defer cancel()
	lock, err := u.l.Acquire(ctx, u.key, opts...)
	if u.answered(err); err == nil {
		return lock
	}
	if limit := (*dblock.LimitError)(nil); errors.As(err, &limit) {
		u.limits.Store(u.key, limit.Stored)
	}
	time.Sleep(rand.N(10 * time.Millisecond))
	return nil
}

func (u *crashCaller) release(lock *dblock.Lock) {
	assert.NoError(u.t, except(lock.Release(u.ctx), dblock.ErrLost))
}

// hold is one use of a lock, from its request till its release.
func (u *crashCaller) hold(s suite.Step, patience time.Duration, use func(*dblock.Lock), opts ...dblock.Option) {
	asked := u.h.Now()
	lock := u.acquire(patience, opts...)
	if lock == nil {
		return
	}
	got := u.h.Now()
	f, _ := lock.Fence()
	s.Key, s.Token = u.key, f.Token
	if s.Mode == dblock.Permits {
		u.note(suite.Believed, asked, got, s)
	}
	u.note(suite.Granted, asked, got, s)
	use(lock)
	leaves := u.h.Now()
	if lock.Context().Err() != nil || time.Now().After(lock.ValidUntil()) {
		leaves = got // it was lost at some time, and others may have had it since
	}
	u.release(lock)
	u.note(suite.Left, leaves, u.h.Now(), s)
}

func (u *crashCaller) update(patience time.Duration, guard bool) {
	u.hold(suite.Step{}, patience, func(lock *dblock.Lock) { u.write(lock, guard) })
}

func (u *crashCaller) write(lock *dblock.Lock, guard bool) {
	f, _ := lock.Fence()
	s := suite.Step{Key: u.key, Token: f.Token, Now: u.value.Add(1)}
	where := fmt.Sprintf(" WHERE lease_key = '%s'", u.key)
	began := u.h.Now()
	if err := u.v.DB.QueryRowContext(u.ctx, "SELECT n FROM guarded"+where).Scan(&s.Was); err != nil {
		return
	}
	time.Sleep(rand.N(20 * time.Millisecond))
	statement := fmt.Sprintf("UPDATE guarded SET n = %d", s.Now) + where
	var err error
	if guard {
		err = u.v.e.Guarded(u.ctx, u.l, lock, statement, func() {})
	} else {
		_, err = u.v.DB.ExecContext(context.WithoutCancel(u.ctx), statement)
	}
	switch {
	case err == nil:
		u.note(suite.Updated, began, u.h.Now(), s)
	case !guard || errors.Is(err, dblock.ErrOutcomeUnknown):
		u.note(suite.Unknown, began, suite.Never, s)
	} // any other error says that nothing was written
}

// readOrWrite reads mostly. A writer may have less patience than readers take.
func (u *crashCaller) readOrWrite() {
	switch rand.N(8) {
	case 0:
		u.update(rand.N(40*time.Millisecond), true)
	case 1, 2:
		u.update(2*crashTTL, true)
	default:
		u.hold(suite.Step{Mode: dblock.Shared}, 2*crashTTL, u.read, dblock.WithShared())
	}
}

// read reads the value within a guarded transaction, which writes down what it saw.
func (u *crashCaller) read(lock *dblock.Lock) {
	f, _ := lock.Fence()
	s := suite.Step{Key: u.key, Mode: f.Mode, Token: f.Token}
	id, began := u.value.Add(1), u.h.Now()
	statement := fmt.Sprintf("INSERT INTO seen SELECT %d, n FROM guarded WHERE lease_key = '%s'", id, u.key)
	wait := func() { time.Sleep(rand.N(5 * time.Millisecond)) }
	if err := u.v.e.Guarded(u.ctx, u.l, lock, statement, wait); err != nil {
		return // what it saw does not count
	}
	ended := u.h.Now()
	row := u.v.DB.QueryRowContext(u.ctx, fmt.Sprintf("SELECT n FROM seen WHERE id = %d", id))
	if row.Scan(&s.Was) == nil {
		u.note(suite.Read, began, ended, s)
	}
}

// permits takes some, of the limit that was last seen; now and then it changes that.
func (u *crashCaller) permits() {
	if rand.N(12) == 0 {
		u.changeLimit()
		return
	}
	seen, _ := u.limits.LoadOrStore(u.key, firstLimit)
	limit := seen.(int)
	n := 1 + rand.N(limit)
	u.hold(suite.Step{Mode: dblock.Permits, Permits: n, Limit: limit}, time.Second,
		func(*dblock.Lock) { time.Sleep(rand.N(30 * time.Millisecond)) }, dblock.WithPermits(n, limit))
}

func (u *crashCaller) changeLimit() {
	s := suite.Step{Key: u.key, Mode: dblock.Permits, Limit: 1 + rand.N(mostLimit)}
	began := u.h.Now()
	err := u.l.SetPermits(u.ctx, u.key, s.Limit)
	u.answered(err)
	switch {
	case err == nil:
		u.limits.Store(u.key, s.Limit)
		u.note(suite.Limited, began, u.h.Now(), s)
	case !errors.Is(err, dblock.ErrBusy) && !errors.Is(err, dblock.ErrUnavailable):
		u.note(suite.Doubtful, began, suite.Never, s)
	}
}

// guardedPermits guards a transaction by permits. They are held while that is open, even if their
// member is declared dead.
func (u *crashCaller) guardedPermits() {
	s := suite.Step{Key: u.key, Mode: dblock.Permits, Permits: 1 + rand.N(firstLimit), Limit: firstLimit}
	lock := u.acquire(time.Second, dblock.WithPermits(s.Permits, firstLimit))
	if lock == nil {
		return
	}
	var in, out int64
	began := u.h.Now()
	err := u.v.e.Guarded(u.ctx, u.l, lock, "SELECT 1", func() {
		in = u.h.Now()
		time.Sleep(rand.N(10 * time.Millisecond))
		out = u.h.Now()
	})
	if err != nil {
		out = began // it was ended, at whatever time
	}
	if in != 0 {
		u.note(suite.Granted, began, in, s)
		u.note(suite.Left, out, u.h.Now(), s)
	}
	u.release(lock)
}

// answered fails an error of no documented kind.
func (u *crashCaller) answered(err error) {
	assert.NoError(u.t, except(err, dblock.ErrOutcomeUnknown, dblock.ErrNotAcquired, dblock.ErrBusy,
		dblock.ErrUnavailable, dblock.ErrLimit))
}
