package pgoptimistic

import (
	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/pglock"
)

// beginnerOf is what can begin transactions, nil if db can't or is in one. alone tells that a
// statement on db may be written once it has run.
func beginnerOf(db DB) (pool pglock.TxBeginner, alone bool, err error) {
	if _, is := db.(pgx.Tx); is {
		return nil, false, nil
	}
	conn, isNil := postgres.ConnOf(db)
	switch {
	case isNil:
		return nil, false, errNoDB
	case postgres.InTransaction(conn):
		return nil, false, nil
	}
	pool, _ = db.(pglock.TxBeginner) // a type of the host's may have no such method
	return pool, true, nil
}

var errNoDB = &dblock.InvalidError{Field: "db", Reason: "it is nil"}
