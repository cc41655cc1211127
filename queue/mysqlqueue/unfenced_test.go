package mysqlqueue_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"regexp"
	"strings"
	"sync"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

// openUnfenced is openOn, but that whoever ends jobs is told that its claims were there, whether they were or not: the control of the fence.
func openUnfenced(ctx context.Context, dsn string, dialer *faultconn.Dialer, o queue.Options) (*queue.Queue, func(), error) {
	inner, err := connector(dsn, dialer)
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(unfenced{inner})
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	q, err := mysqlqueue.New(ctx, db, o)
	if err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return q, func() { _ = db.Close() }, nil
}

// unfenced makes such connections.
type unfenced struct{ driver.Connector }

func (c unfenced) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return unfencedConn{conn, conn.(wire)}, nil
}

// wire is what database/sql uses of a connection.
type wire interface {
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type unfencedConn struct {
	driver.Conn
	wire
}

// claims is how many rows each claim would have if nobody took them away.
var claims sync.Map

var hexes = regexp.MustCompile(`x'([0-9a-f]{32})'`)

func (c unfencedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.wire.ExecContext(ctx, query, args)
	ids := hexes.FindAllStringSubmatch(query, -1)
	if err != nil || len(ids) < 2 {
		return result, err
	}
	claim := ids[1][1] // after the member's
	endClaimed := strings.Contains(query, "-- name: EndClaimed :")
	if endClaimed { // the ids of its jobs stand before both
		claim = ids[len(ids)-1][1]
	}
	has, _ := claims.Load(claim)
	rows, _ := has.(int64)
	switch {
	case strings.Contains(query, "-- name: ClaimJobs :"):
		n, err := result.RowsAffected()
		claims.Store(claim, n)
		return result, err
	case endClaimed:
		n := int64(len(ids) - 2)
		claims.Store(claim, rows-n)
		return driver.RowsAffected(n), nil
	case strings.Contains(query, "-- name: EndClaim :"):
		return driver.RowsAffected(rows), nil
	}
	return result, nil
}
