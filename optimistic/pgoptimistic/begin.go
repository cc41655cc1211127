package pgoptimistic

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/pglock"
)

// beginnerOf is what can begin transactions, nil where db can't or is in one. alone tells that a statement on db may be written
// once it has run.
func beginnerOf(db DB) (pool pglock.TxBeginner, alone bool, err error) {
	var conn *pgx.Conn
	switch db := db.(type) {
	case nil:
		return nil, false, errNoDB
	case *pgxpool.Pool:
		if db == nil {
			return nil, false, errNoDB
		}
		return db, true, nil
	case pgx.Tx:
		return nil, false, nil
	case *pgx.Conn:
		conn = db
	case *pgxpool.Conn:
		if db != nil {
			conn = db.Conn()
		}
	default: // somebody's wrapper
		pool, _ = db.(pglock.TxBeginner)
		return pool, true, nil
	}
	switch {
	case conn == nil:
		return nil, false, errNoDB
	case !conn.IsClosed() && conn.PgConn().TxStatus() != 'I':
		return nil, false, nil
	}
	return conn, true, nil
}

var errNoDB = &dblock.InvalidError{Field: "db", Reason: "it is nil"}
