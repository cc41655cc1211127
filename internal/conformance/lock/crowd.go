package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

const crowdTTL = 6 * time.Second // a statement may take half of it, on a machine that is busy with other tests

// crowdSize is how many leases a process holds that dies.
func crowdSize() int {
	if os.Getenv(suite.EnvSoak) != "" {
		return 10_000
	}
	return 2_000
}

// holdAll acquires so many leases at once.
func holdAll(ctx context.Context, l dblock.Locker, n int) ([]*dblock.Lock, error) {
	locks, errs := make([]*dblock.Lock, n), make(chan error, n)
	var all sync.WaitGroup
	for i := range locks {
		all.Go(func() {
			var err error
			if locks[i], err = l.Acquire(ctx, fmt.Sprint("k", i)); err != nil {
				errs <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return nil, fmt.Errorf("%d of %d were not acquired: %w", len(errs)+1, n, err)
	default:
		return locks, nil
	}
}

func (e Lease) holdCrowdUntilKilled(dsn string) error {
	l, _, err := e.Open(context.Background(), dsn, LeaseOptions{TTL: crowdTTL})
	if err != nil {
		return err
	}
	if _, err := holdAll(context.Background(), l, crowdSize()); err != nil {
		return err
	}
	fmt.Println("held")
	suite.WaitToGoOn()
	return nil
}

// takesOverACrowd kills -9 a process that holds thousands of leases: all are another's when its time is up.
func takesOverACrowd(t *testing.T, v *env) {
	holder := v.startHolder(t, suite.Soon(t), holdsCrowd)
	holder.Says(t, "held")
	l := v.abandoned(t, LeaseOptions{})
	holder.Kill()
	began := time.Now()
	if _, err := holdAll(suite.Soon(t), l, crowdSize()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d leases of a killed process were all taken over %v after its end, of a TTL of %v", crowdSize(), time.Since(began), crowdTTL)
}

// closeFreesACrowd closes a Locker whose users hold thousands of leases and give none back: as it leaves, all are free in one
// statement.
func closeFreesACrowd(t *testing.T, v *env) {
	var dialer faultconn.Dialer
	l, closePool, err := v.e.OpenOn(t.Context(), v.dsn, &dialer, LeaseOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	if _, err := holdAll(suite.Soon(t), l, crowdSize()); err != nil {
		t.Fatal(err)
	}
	next := v.abandoned(t, LeaseOptions{})
	_, err = next.TryAcquire(t.Context(), "k0")
	suite.IsHeld(t, err, "k0")
	dialer.Arm(0, 0, nil)
	closeNow(t, l)
	calls := dialer.Calls()
	if calls > 50 { // a statement is two, and the end of a connection some more
		t.Errorf("%d calls on the network", calls)
	}
	began := time.Now()
	if _, err := holdAll(suite.Soon(t), next, crowdSize()); err != nil {
		t.Fatal(err)
	}
	t.Logf("Close freed %d leases in %d calls on the network, and another process had all after %v", crowdSize(), calls, time.Since(began))
}

// abandoned is a process whose users give no lock back.
func (v *env) abandoned(t *testing.T, o LeaseOptions) Leases {
	t.Helper()
	l, closePool, err := v.e.Open(t.Context(), v.dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeNow(t, l)
		closePool()
	})
	return l
}

// closeNow does not wait for those who hold locks.
func closeNow(t *testing.T, l Leases) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cancel()
	if err := l.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("closed with locks in use: %v", err)
	}
}

// aCrowdCostsOneRow holds thousands of leases: a heartbeat changes one row.
func aCrowdCostsOneRow(t *testing.T, v *env) {
	l := v.abandoned(t, LeaseOptions{TTL: crowdTTL})
	locks, err := holdAll(suite.Soon(t), l, crowdSize())
	if err != nil {
		t.Fatal(err)
	}
	v.countChanges(t, "dblock_lease", "dblock_member")
	beats := v.count(t, "SELECT max(beat) FROM dblock_member")
	for ctx := suite.Soon(t); v.count(t, "SELECT max(beat) FROM dblock_member") < beats+2; {
		if ctx.Err() != nil {
			t.Fatal("no heartbeat")
		}
		time.Sleep(10 * time.Millisecond)
	}
	beats = v.count(t, "SELECT max(beat) FROM dblock_member") - beats
	changes := v.count(t, "SELECT n FROM changes")
	t.Logf("%d heartbeats of %d leases changed %d rows", beats, crowdSize(), changes)
	if changes < beats || changes > beats+1 { // one may have come between the two looks
		t.Errorf("%d rows were changed by %d heartbeats", changes, beats)
	}
	suite.Release(t, locks[0])
	if v.count(t, "SELECT n FROM changes") <= changes {
		t.Error("a release changed nothing: this shows nothing")
	}
}

// countChanges counts every row of these tables that is changed from now on, in a table of its own.
func (v *env) countChanges(t *testing.T, tables ...string) {
	t.Helper()
	v.exec(t, "CREATE TABLE changes (n BIGINT)")
	v.exec(t, "INSERT INTO changes VALUES (0)")
	if v.e.Kind == devdb.Postgres {
		v.exec(t, `CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN UPDATE changes SET n = n + 1; RETURN NULL; END'`)
	}
	for _, table := range tables {
		for _, event := range []string{"INSERT", "UPDATE", "DELETE"} {
			do := "UPDATE changes SET n = n + 1"
			if v.e.Kind == devdb.Postgres {
				do = "EXECUTE FUNCTION changed()"
			}
			v.exec(t, fmt.Sprintf("CREATE TRIGGER %s_%s AFTER %s ON %s FOR EACH ROW %s", table, event, event, table, do))
		}
	}
}
