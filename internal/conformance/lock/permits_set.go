package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// fewerPermitsCountOneUnderWay lowers the number of a semaphore while an acquisition that began under the larger number
// is still under way at the server. Together with what is granted afterwards it must not exceed the smaller number.
func fewerPermitsCountOneUnderWay(t *testing.T, v *env) {
	const before, after = 5, 3
	v.dsn += readCommitted[v.e.Kind]
	l, other := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	most := suite.Acquire(t, l, "k", dblock.WithPermits(before-1, before))
	sleeping := v.slowPermit(t, before)
	underWay := make(chan *dblock.Lock, 1)
	go func() {
		lock, err := other.TryAcquire(context.WithoutCancel(t.Context()), "k", dblock.WithPermits(1, before))
		if err != nil && !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, dblock.ErrLimit) {
			t.Errorf("the acquisition under way: %v", err)
		}
		underWay <- lock
	}()
	for v.count(t, sleeping) == 0 {
		time.Sleep(time.Millisecond)
	}
	set := make(chan error, 1)
	go func() { set <- l.SetPermits(context.WithoutCancel(t.Context()), "k", after) }()
	select {
	case err := <-set:
		set <- err
	case <-time.After(200 * time.Millisecond): // it waits for the acquisition
	}
	suite.Release(t, most)
	held := takePermits(t, l, "k", after)
	if lock := <-underWay; lock != nil {
		held = append(held, lock)
	}
	if err := <-set; err != nil {
		t.Fatal(err)
	}
	for len(held) < after { // the others are free, or soon will be
		held = append(held, suite.Acquire(t, l, "k", dblock.WithPermits(1, after)))
	}
	if held = append(held, takePermits(t, l, "k", after)...); len(held) != after {
		t.Errorf("%d permits of %d are held", len(held), after)
	}
	releaseTogether(t, held)
}

// readCommitted has the connections of a DSN run at READ COMMITTED, as those of Postgres do.
var readCommitted = map[devdb.Kind]string{
	devdb.MariaDB: "?tx_isolation=%27READ-COMMITTED%27", devdb.MySQL: "?transaction_isolation=%27READ-COMMITTED%27",
}

// slowPermit has each grant of a permit take a second at the server. The query it returns counts those under way.
func (v *env) slowPermit(t *testing.T, slot int) (sleeping string) {
	t.Helper()
	which := fmt.Sprintf("new.slot = %d AND new.handle IS NOT NULL", slot)
	if v.e.Kind == devdb.Postgres {
		v.exec(t, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN new; END'")
		v.exec(t, "CREATE TRIGGER slow BEFORE UPDATE ON dblock_permit FOR EACH ROW WHEN ("+which+") EXECUTE FUNCTION slow()")
		return "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
	}
	v.exec(t, "CREATE TRIGGER slow BEFORE UPDATE ON dblock_permit FOR EACH ROW IF "+which+" THEN SET @slept = SLEEP(1); END IF")
	return "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User sleep'"
}

// takePermits acquires permits, one at a time, until it is refused.
func takePermits(t *testing.T, l Leases, key string, limit int) (locks []*dblock.Lock) {
	t.Helper()
	for {
		lock, err := l.TryAcquire(suite.Soon(t), key, dblock.WithPermits(1, limit))
		if err == nil {
			locks = append(locks, lock)
			continue
		}
		if !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, dblock.ErrLimit) {
			t.Error(err)
		}
		return locks
	}
}
