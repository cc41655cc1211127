package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const (
	lateTTL      = time.Second // the shortest
	lateChildren = 5
)

// releaseWhenTold holds a lease, and releases it when it is told to. Its last line says what Release has returned.
func (e Lease) releaseWhenTold(dsn, key string) error {
	ctx := context.Background()
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: lateTTL})
	if err != nil {
		return err
	}
	lock, err := l.Acquire(ctx, key)
	if err != nil {
		return err
	}
	fmt.Println("holds")
	suite.WaitToGoOn()
	if err := lock.Release(ctx); errors.Is(err, dblock.ErrLost) {
		fmt.Println("lost")
	} else {
		fmt.Println("released", err)
	}
	return nil
}

// startLate starts a process that holds a key until it is told to go on.
func (v *env) startLate(t *testing.T, key string) *suite.Child {
	t.Helper()
	cmd := exec.CommandContext(suite.Soon(t), os.Args[0])
	cmd.Env = append(os.Environ(), holderDSN+"="+v.dsn, holderKind+"="+string(v.e.Kind), holderMode+"="+releasesWhenTold, holderKey+"="+key)
	return suite.StartChild(t, cmd)
}

// aPauseBeforeARelease stops processes for longer than their TTL, until another process has their keys. Their next call is
// Release, which says that the lock was lost.
func aPauseBeforeARelease(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	var children []*suite.Child
	for range lateChildren {
		key := fmt.Sprint("k", len(children))
		c := v.startLate(t, key)
		defer c.Kill()
		c.Says(t, "holds")
		if err := suite.Suspend(c.Process); err != nil {
			t.Fatal(err)
		}
		children = append(children, c)
	}
	for i, c := range children {
		next := suite.Acquire(t, l, fmt.Sprint("k", i))
		_ = c.In.Close()
		if err := suite.Resume(c.Process); err != nil {
			t.Fatal(err)
		}
		c.Says(t, "lost")
		suite.Release(t, next)
	}
}
