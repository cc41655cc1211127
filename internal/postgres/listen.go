package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
)

// heardWithin is how long a notification may take, on however busy a server.
const heardWithin = 5 * time.Second

// listensWithin is how long a LISTEN may take.
const listensWithin = 5 * time.Minute

// Listen connects as pool does, and calls received with the payload of each notification until ctx
// ends or the connection does. It calls ready first: nothing that is notified from then on is
// missed. Both are called on this goroutine.
//
// Behind a pooler in transaction mode no notification arrives, and no statement fails. So it has
// pool send it something first.
//
// Errors: dblock.ErrUnsupported if there is a pooler and nothing came; the driver's.
func Listen(ctx context.Context, pool *pgxpool.Pool, channel string, ready func(), received func(payload string)) error {
	conn, err := Connect(ctx, pool, func(cfg *pgx.ConnConfig) { cfg.OnNotification = nil }) // the host's would take them
	if err != nil {
		return err
	}
	defer CloseConn(conn)
	if err := begin(ctx, pool, conn, channel); err != nil {
		return err
	}
	ready()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if n.Channel == channel {
			received(n.Payload)
		}
	}
}

// begin listens once it has received its own notification: what a pooler's sessions listen to
// stays, and would come to others.
func begin(ctx context.Context, pool *pgxpool.Pool, conn *pgx.Conn, channel string) error {
	server, err := Probe(ctx, conn)
	if err != nil {
		return err
	}
	own := "dblock_" + member.NewID().String()
	err = checkListen(ctx, pool, conn, own)
	if server.Pooled && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%w: nothing is received through the pooler between here and the server: in transaction mode LISTEN does not work", dblock.ErrUnsupported)
	}
	if err != nil {
		return err
	}
	// The connection may be silent for long.
	for _, statement := range []string{
		"select set_config('idle_session_timeout', '0', false)",
		"unlisten " + pgx.Identifier{own}.Sanitize(), "listen " + pgx.Identifier{channel}.Sanitize(), // the last, as the server shows it
	} {
		if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// checkListen makes sure that what another connection sends comes.
func checkListen(ctx context.Context, pool *pgxpool.Pool, conn *pgx.Conn, own string) error {
	// A LISTEN reads all that is queued for other databases too. The server does not end it before,
	// so to give up soon and to try again would only add sessions.
	slow, stop := context.WithTimeout(ctx, listensWithin)
	defer stop()
	if _, err := conn.Exec(slow, "listen "+pgx.Identifier{own}.Sanitize(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("LISTEN (it is slow while the server's queue is full: see pg_notification_queue_usage): %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, heardWithin)
	defer cancel()
	var q pgdb.Queries
	if err := q.NotifyNothing(ctx, pool, own); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil || n.Channel == own {
			return err
		}
	}
}
