package lock

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// The processes that tests start, to kill or to stop them, are this test binary again. Its
// environment says what to do.
const (
	holderDSN  = "DBLOCK_TEST_HOLDER"
	holderKind = "DBLOCK_TEST_HOLDER_KIND"
	holderMode = "DBLOCK_TEST_HOLDER_MODE" // one of those below
	holderData = "DBLOCK_TEST_HOLDER_DATA" // the database that is written to, if it is another one
	holderKey  = "DBLOCK_TEST_HOLDER_KEY"
	holderTTL  = "DBLOCK_TEST_HOLDER_TTL"

	guardedWrites    = "guarded"
	unguardedWrites  = "unguarded"
	raisedWrites     = "raised"
	holdsCrowd       = "crowd"
	staysInGuard     = "in a guarded transaction"
	waitsFairly      = "waits with a ticket"
	guardedTerms     = "guarded terms"
	unguardedTerms   = "unguarded terms"
	countsOnIt       = "counts on it"
	churns           = "churns"
	churnsFairly     = "churns with tickets"
	releasesWhenTold = "releases when told"
	excludesRandomly = "excludes randomly"
	entersUnasked    = "enters unasked"
)

// Main does what a test has started this process for, and then never returns. Call it first in
// TestMain.
func (e Lease) Main() {
	dsn, mode, ctx := os.Getenv(holderDSN), os.Getenv(holderMode), context.Background()
	if dsn == "" {
		return
	}
	e.Kind = devdb.Kind(os.Getenv(holderKind))
	var err error
	switch mode {
	case guardedWrites, unguardedWrites, raisedWrites:
		err = e.countUntilKilled(ctx, dsn, mode)
	case holdsCrowd:
		err = e.holdCrowd(ctx, dsn)
	case waitsFairly:
		err = e.waitFairly(ctx, dsn)
	case staysInGuard, releasesWhenTold:
		err = e.holdUntilTold(ctx, dsn, mode)
	case guardedTerms, unguardedTerms:
		err = e.campaign(ctx, dsn, mode == guardedTerms)
	case countsOnIt:
		err = e.countOn(ctx, dsn)
	case churns, churnsFairly:
		err = e.churn(ctx, dsn, mode == churnsFairly)
	case excludesRandomly, entersUnasked:
		err = e.excludeAtRandom(ctx, dsn, mode == entersUnasked)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
	}
	os.Exit(1)
}

// startHolder starts a process in one of the modes, which is killed at the end of the test. With
// holderData it writes to another database.
func (v *env) startHolder(t *testing.T, ctx context.Context, mode string, environment ...string) *suite.Child {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), holderDSN+"="+v.DSN, holderKind+"="+string(v.Kind), holderMode+"="+mode,
		holderData+"="+v.DSN)
	cmd.Env = append(cmd.Env, environment...)
	c := suite.StartChild(t, cmd)
	t.Cleanup(c.Kill)
	return c
}

// connect opens a pool in a process that a test has started.
func (e Lease) connect(dsn string) (*sql.DB, error) { return sql.Open(suite.DriverOf(e.Kind), dsn) }

func (e Lease) countOn(ctx context.Context, dsn string) error {
	ttl, err := time.ParseDuration(os.Getenv(holderTTL))
	if err != nil {
		return err
	}
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: ttl})
	if err != nil {
		return err
	}
	return suite.CountOn(ctx, l, os.Getenv(holderKey))
}

// toCountOn has the process of a command count on a key, on the database of dsn.
func (e Lease) toCountOn(cmd *exec.Cmd, dsn, key string, ttl time.Duration) *exec.Cmd {
	cmd.Env = append(os.Environ(), holderDSN+"="+dsn, holderKind+"="+string(e.Kind), holderMode+"="+countsOnIt,
		holderKey+"="+key, holderTTL+"="+ttl.String())
	return cmd
}
