package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// sessionLocks connects to the database whose session locks list reads.
func (f databaseFlags) sessionLocks(ctx context.Context) (list func() ([]dblock.SessionLock, error), closeAll func() error, err error) {
	type lister = func() ([]dblock.SessionLock, error)
	return connect(ctx, f,
		func(pool *pgxpool.Pool) (lister, error) {
			return func() ([]dblock.SessionLock, error) { return pglock.SessionLocks(ctx, pool, f.Schema) }, nil
		},
		func(db *sql.DB) (lister, error) {
			return func() ([]dblock.SessionLock, error) { return mysqllock.SessionLocks(ctx, db, f.Schema) }, nil
		})
}

// shownSessionLock is one session lock for a program.
type shownSessionLock struct {
	ID        string `json:"id"`        // what the server calls it by
	Namespace string `json:"namespace"` // these two where they are known
	Key       string `json:"key"`
	Mode      string `json:"mode"`    // exclusive or shared
	State     string `json:"state"`   // held or waits
	Session   string `json:"session"` // its number in the server's list of processes
	Label     string `json:"label"`
	Client    string `json:"client"`
	Waiters   int64  `json:"waiters"` // sessions
}

func (c *locksCmd) printSessions(out io.Writer, locks []dblock.SessionLock) error {
	shown := make([]shownSessionLock, len(locks))
	for i, l := range locks {
		shown[i] = shownSessionLock{l.ID, l.Namespace, l.Key, l.Mode.String(), "held", l.Session, l.Label, l.Client, l.Waiters}
		if l.Waits {
			shown[i].State = "waits"
		}
	}
	if c.JSON {
		return printJSON(out, shown)
	}
	if len(locks) == 0 {
		_, err := fmt.Fprintln(out, "no session has a lock")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "KEY\tNAMESPACE\tID\tMODE\tSTATE\tSESSION\tLABEL\tCLIENT\tWAITERS")
	for _, l := range shown {
		key := printable(l.Key)
		if key == "" {
			key = "-"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%.20s\t%s\t%s\t%s\t%s\t%s\t%d\n", key, printable(l.Namespace), printable(l.ID), l.Mode, l.State, l.Session,
			printable(l.Label), printable(l.Client), l.Waiters)
	}
	return t.Flush()
}
