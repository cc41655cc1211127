package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// A process of TestFaultsOfQuorumProcesses is this test binary again.
const (
	quorumNodes = "DBLOCK_TEST_QUORUM_NODES" // one a line: kind and DSN
	quorumDir   = "DBLOCK_TEST_QUORUM_DIR"   // of the judge's files
	quorumOne   = "DBLOCK_TEST_QUORUM_ONE"   // set: one node is enough

	quorumCallers = 6 // of a process, for one key
	quorumKept    = "kept"
)

// quorumProcess is a process whose callers hand a key on, and one of which keeps another key.
type quorumProcess struct {
	checker sections
	nodes   []Leases
	turns   atomic.Int64
	one     bool
	q       *dblock.Quorum
}

// quorumMain does what a test has started this process for, until it is killed.
func quorumMain() {
	if os.Getenv(quorumNodes) == "" {
		return
	}
	if err := excludeByQuorum(context.Background()); err != nil {
		fmt.Println("error", err)
	}
	os.Exit(1)
}

func excludeByQuorum(ctx context.Context) error {
	p := &quorumProcess{checker: sections{os.Getenv(quorumDir)}, one: os.Getenv(quorumOne) != ""}
	var lockers []dblock.Locker
	for node := range strings.SplitSeq(os.Getenv(quorumNodes), "\n") {
		kind, dsn, _ := strings.Cut(node, " ")
		open := openOnMySQL
		if devdb.Kind(kind) == devdb.Postgres {
			open = openOnPostgres
		}
		l, _, err := open(ctx, dsn)
		if err != nil {
			return err
		}
		p.nodes = append(p.nodes, l)
		lockers = append(lockers, promised{l})
	}
	var err error
	if p.q, err = dblock.NewQuorum(lockers, dblock.QuorumOptions{NodeTimeout: quorumTTL / 4}); err != nil {
		return err
	}
	fmt.Println("ready")
	for range quorumCallers {
		go func() {
			for {
				p.turn(ctx, "k", func() time.Duration { return rand.N(5 * time.Millisecond) })
				p.turns.Add(1)
			}
		}()
	}
	if !p.one {
		go func() {
			for {
				p.turn(ctx, quorumKept, func() time.Duration { return time.Hour })
			}
		}()
	}
	for {
		began := time.Now()
		time.Sleep(quorumTTL / 40)
		if time.Since(began) > quorumTTL/8 {
			fmt.Println("stalled", time.Since(began))
		}
		fmt.Println("turns", p.turns.Load())
	}
}

// acquire waits for a key, of which a Quorum grants one lock at a time.
func (p *quorumProcess) acquire(ctx context.Context, key string) (*dblock.Lock, error) {
	if !p.one {
		return p.q.Acquire(ctx, key, dblock.WithLabel(strconv.Itoa(os.Getpid())))
	}
	for ; ; time.Sleep(time.Millisecond) {
		for _, n := range p.nodes {
			if lock, err := n.TryAcquire(ctx, key); err == nil || ctx.Err() != nil {
				return lock, err
			}
		}
	}
}

// turn is in a section while it trusts its lock, for a while at most.
func (p *quorumProcess) turn(ctx context.Context, key string, stays func() time.Duration) {
	waits, cancel := context.WithTimeout(ctx, 2*quorumTTL)
	defer cancel()
	lock, err := p.acquire(waits, key)
	if err != nil {
		if !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, dblock.ErrUnavailable) {
			fmt.Println("error", err)
		}
		return
	}
	defer func() { _ = lock.Release(ctx) }()
	valid := lock.ValidUntil()
	inside, err := p.checker.enter(exclusionOp{keys: []string{key}})
	entered := time.Now()
	switch {
	case errors.Is(err, errOverlap) && entered.Before(valid) && entered.Before(lock.ValidUntil()):
		fmt.Println("overlap", key, entered.UnixNano())
		return
	case err != nil:
		return
	}
	leave := entered.Add(stays())
	for now := entered; now.Before(leave) && now.Before(valid) && lock.Context().Err() == nil; now = time.Now() {
		time.Sleep(min(time.Millisecond, leave.Sub(now)))
		if next := lock.ValidUntil(); !next.IsZero() {
			valid = next
		}
	}
	inside.leave()
	if left := time.Now(); left.After(valid) {
		fmt.Println("late", key, valid.UnixNano(), left.UnixNano())
	}
	if why := context.Cause(lock.Context()); why != nil && key == quorumKept {
		fmt.Println("lost", why)
	}
}
