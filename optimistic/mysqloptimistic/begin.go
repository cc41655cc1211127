package mysqloptimistic

import (
	"context"
	"database/sql"
	"runtime"
	"sync"
	"weak"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// beginnerOf is what can begin transactions, nil if db can't or may be in one. alone tells that a
// statement on db may be written once it has run.
func beginnerOf(db DB) (pool *sql.DB, alone bool, err error) {
	switch db := db.(type) {
	case nil:
		return nil, false, errNoDB
	case *sql.DB:
		if db == nil {
			return nil, false, errNoDB
		}
		return db, true, nil
	case *sql.Tx:
		if db == nil {
			return nil, false, errNoDB
		}
		return nil, false, nil
	case *sql.Conn:
		if db == nil {
			return nil, false, errNoDB
		}
	}
	return nil, true, nil
}

var errNoDB = &dblock.InvalidError{Field: "db", Reason: "it is nil"}

// checked are the pools whose connections commit each statement and read all rows. It keeps none of them alive.
var checked = struct {
	mu    sync.RWMutex
	pools map[weak.Pointer[sql.DB]]bool
}{pools: make(map[weak.Pointer[sql.DB]]bool)}

// checkPool refuses a pool whose connections have autocommit off: a statement on it would be acknowledged and never be committed.
// It also refuses one whose connections have a sql_select_limit, and one at READ UNCOMMITTED: a version that is read there may be
// rolled back, and the next writer makes the same one. It asks once a pool. Other DBs are transactions, or connections
// of the caller's.
func checkPool(ctx context.Context, db DB) error {
	pool, ok := db.(*sql.DB)
	if !ok || pool == nil {
		return nil
	}
	key := weak.Make(pool)
	checked.mu.RLock()
	known := checked.pools[key]
	checked.mu.RUnlock()
	if known {
		return nil
	}
	var on bool
	var limit, completion, isolation string
	if err := pool.QueryRowContext(ctx, settings).Scan(&on, &limit, &completion, &isolation); err != nil {
		return sqlerr.Unwritten(err)
	}
	if !on {
		return refused("db", "its connections have autocommit off, so no statement on it would be committed; nothing was written: "+
			"take autocommit=0 out of the DSN and of the server's settings, or use a transaction")
	}
	if limit != mysql.AllRows {
		return refused("db", "its connections have a sql_select_limit, so the server leaves out rows that are read; nothing was written: "+
			"take sql_select_limit out of the DSN and of the server's settings")
	}
	if completion != "NO_CHAIN" {
		return refused("db", "its connections have completion_type = %s, so a transaction follows each one, and later statements on the "+
			"connection are not committed; nothing was written: take completion_type out of the DSN and of the server's settings", completion)
	}
	if isolation == "READ-UNCOMMITTED" {
		return refused("db", "its connections read at READ UNCOMMITTED, so a version that is read may be rolled back, and a write that "+
			"expects it would overwrite another one unseen; nothing was written: take it out of the DSN and of the server's settings, "+
			"and set it for the transactions that want it")
	}
	checked.mu.Lock()
	defer checked.mu.Unlock()
	if !checked.pools[key] {
		checked.pools[key] = true
		runtime.AddCleanup(pool, forgetPool, key)
	}
	return nil
}

// settings are those of the session. MySQL and MariaDB have different names for the isolation.
const settings = "SELECT @@autocommit, CAST(@@sql_select_limit AS CHAR), CAST(@@completion_type AS CHAR), " +
	"/*!80000 @@transaction_isolation */ /*M! @@tx_isolation */ LIMIT 1"

func forgetPool(key weak.Pointer[sql.DB]) {
	checked.mu.Lock()
	defer checked.mu.Unlock()
	delete(checked.pools, key)
}
