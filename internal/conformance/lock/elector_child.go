package lock

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const termTTL = 2 * time.Second

// campaignUntilKilled is a candidate that writes down its token, over and over, while it leads. It writes a line when it
// leads, and one when it is about to write.
func (e Lease) campaignUntilKilled(dsn, mode string) error {
	ctx := context.Background()
	db, err := sql.Open(suite.DriverOf(e.Kind), dsn)
	if err != nil {
		return err
	}
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: termTTL, Poll: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	c, err := dblock.NewElector(l, "leader", dblock.ElectorOptions{})
	if err != nil {
		return err
	}
	for { // a session that the server has ended ends Run: that is fn's own error
		err := c.Run(ctx, func(ctx context.Context, term dblock.Fence) error {
			fmt.Println("leads", term.Token)
			for ctx.Err() == nil {
				if err := e.writeDown(ctx, db, l, term, mode); err != nil {
					return err
				}
			}
			return nil
		})
		fmt.Fprintln(os.Stderr, "candidate:", err) // a pause has consequences; what counts is what was written
	}
}

// writeDown takes its time, and writes the token behind all that was written before.
func (e Lease) writeDown(ctx context.Context, db *sql.DB, l Leases, term dblock.Fence, mode string) error {
	fmt.Println("writes", term.Token)
	time.Sleep(20 * time.Millisecond)
	write := fmt.Sprintf("INSERT INTO terms SELECT COALESCE(MAX(n), 0) + 1, %d FROM terms", term.Token)
	if mode == unguardedTerms {
		_, _ = db.ExecContext(context.WithoutCancel(ctx), write) // beside another leader's it may fail
		return nil
	}
	lock, _ := dblock.LockOf(ctx)
	return e.Guarded(ctx, l, lock, write, func() {})
}
