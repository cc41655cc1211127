package mysqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysql"
)

// engine is the leases of one database.
type engine struct {
	*mysql.Members
	db    *mysql.Database
	watch time.Duration // between two looks at what is waited for; 0: none

	notDurable string // the setting for which commits don't survive a crash; empty: they do

	q mysqldb.Queries
}

var _ lease.Engine = (*engine)(nil)

// openEngine finds the tables, and checks that they and the server meet the requirements.
func openEngine(ctx context.Context, host *sql.DB, schemaName string, watch time.Duration) (*engine, func(), error) {
	db, err := mysql.Open(ctx, host, schemaName)
	if err != nil {
		return nil, nil, err
	}
	e := &engine{Members: mysql.NewMembers(db, false), db: db, watch: watch}
	if e.notDurable, err = e.undurable(ctx); err != nil {
		return nil, nil, mysql.Unavailable(err)
	}
	return e, e.Close, nil
}

// Lingers is for how long a statement may wait for a gap, once the client has given up. (MariaDB's
// don't wait.)
func (e *engine) Lingers() time.Duration {
	if e.db.MariaDB {
		return 0
	}
	return e.db.LockWait
}

func (e *engine) LongestStatement() int { return e.db.LongestStatement() }
