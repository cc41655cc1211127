package mysqloptimistic

import (
	"context"
	"database/sql"
	"runtime"
	"sync"
	"weak"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/fault"
)

// beginnerOf is what can begin transactions, nil where db can't or may be in one. alone tells that a statement on db may be written
// once it has run.
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

// committing are the pools whose connections commit each statement. It keeps none of them alive.
var committing = struct {
	mu    sync.RWMutex
	pools map[weak.Pointer[sql.DB]]bool
}{pools: make(map[weak.Pointer[sql.DB]]bool)}

// mustCommit refuses a pool whose connections have autocommit off: a statement on it would be acknowledged and
// never be committed. It asks once a pool. Other DBs are transactions, or connections of the caller's.
func mustCommit(ctx context.Context, db DB) error {
	pool, ok := db.(*sql.DB)
	if !ok || pool == nil {
		return nil
	}
	key := weak.Make(pool)
	committing.mu.RLock()
	known := committing.pools[key]
	committing.mu.RUnlock()
	if known {
		return nil
	}
	var on bool
	if err := pool.QueryRowContext(ctx, "SELECT @@autocommit").Scan(&on); err != nil {
		return fault.NoWrite(err)
	}
	if !on {
		return refused("db", "its connections have autocommit off, so no statement on it would be committed; nothing was written: "+
			"take autocommit=0 out of the DSN and of the server's settings, or use a transaction")
	}
	committing.mu.Lock()
	defer committing.mu.Unlock()
	if !committing.pools[key] {
		committing.pools[key] = true
		runtime.AddCleanup(pool, forgetPool, key)
	}
	return nil
}

func forgetPool(key weak.Pointer[sql.DB]) {
	committing.mu.Lock()
	defer committing.mu.Unlock()
	delete(committing.pools, key)
}
