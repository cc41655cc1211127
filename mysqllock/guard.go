package mysqllock

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlschema"
)

// Guards check fences inside transactions. The zero value is good for use. They bound no idle
// transaction: until the server's wait_timeout (8 hours by default) a client that hangs inside one
// keeps others from taking the lease over. Lease.GuardedTx bounds it by the TTL.
type Guards struct {
	// Schema is the database that holds dblock's tables. Default: the one that tx is connected to.
	Schema string
}

// Guard checks, in the database of the leases, that a lease is still ours, and keeps it so till tx ends:
// nobody can take it over before. It comes first in the transaction that writes what the lease protects.
// It sees the row as it is, whatever tx has read before.
//
// Errors: dblock.ErrFenced where the lease is not ours any more: roll back. Others are the driver's.
func (g Guards) Guard(ctx context.Context, tx *sql.Tx, f dblock.Fence) error {
	var q mysqldb.Queries
	ours, err := q.Guard(ctx, mysqlschema.On(tx, g.Schema), []byte(f.Key), f.Token, f.Handle[:])
	return fenced(ours, err, fmt.Sprintf("lease %q with token %d", f.Key, f.Token))
}

// Raise says, in whatever database the data is, that the holder of f begins to read resource: from then on
// nobody with a smaller token passes CheckRaised. It is for data that is not in the database of the leases, and
// comes first in the critical section. That database needs dblock's tables, too.
//
// Errors: dblock.ErrFenced where somebody with a larger token was there before. Others are the driver's.
func (g Guards) Raise(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error {
	if err := dblock.CheckText("resource", resource, 1, dblock.MaxKeyBytes); err != nil {
		return err
	}
	var q mysqldb.Queries
	if err := q.Raise(ctx, mysqlschema.On(tx, g.Schema), []byte(resource), f.Token, f.Handle[:]); err != nil {
		return err
	}
	return g.CheckRaised(ctx, tx, f, resource)
}

// CheckRaised checks that nobody has raised the fence of resource since Raise, and keeps it so till tx
// ends. It belongs into each transaction that writes the resource.
//
// Errors: dblock.ErrFenced where somebody has: roll back. Others are the driver's.
func (g Guards) CheckRaised(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error {
	var q mysqldb.Queries
	ours, err := q.CheckRaised(ctx, mysqlschema.On(tx, g.Schema), []byte(resource), f.Token, f.Handle[:])
	return fenced(ours, err, fmt.Sprintf("resource %q with token %d", resource, f.Token))
}

// fenced reads the answer of a guard.
func fenced[T any](ours []T, err error, what string) error {
	if err == nil && len(ours) == 0 {
		return fmt.Errorf("%w: %s is not ours any more: roll back", dblock.ErrFenced, what)
	}
	return err
}
