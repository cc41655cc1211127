package mysqloptimistic

import (
	"database/sql"

	"github.com/dblock-go/dblock"
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
