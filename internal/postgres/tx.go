package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The protocol tells that a session is in a transaction, and not in which one. After ROLLBACK AND
// CHAIN, or a ROLLBACK and a BEGIN, it is in another one: what was written before is gone or
// committed, and locks are released. So dblock's transactions begin with a setting that ends with
// them, and check it before they commit.
const (
	// MarkTx is the first statement of a transaction.
	MarkTx = "set local dblock.transaction = 'begun'"

	// CheckTx fails if the transaction is not the one that MarkTx began. See IsTxEnded. It names what it
	// calls with its schema, because the search_path is the host's.
	CheckTx = "select case when coalesce(pg_catalog.current_setting('dblock.transaction', true), '') operator(pg_catalog.<>) 'begun'" +
		" then pg_catalog.current_setting('" + noSetting + "') end"

	noSetting = "dblock.transaction_was_ended"
)

// IsTxEnded tells that CheckTx has failed, and with it the transaction.
func IsTxEnded(err error) bool {
	var server *pgconn.PgError
	const undefinedObject = "42704"
	return errors.As(err, &server) && server.Code == undefinedObject && strings.Contains(server.Message, noSetting)
}

// MarkedTx returns the options with which pgx sends MarkTx when the transaction begins, and CheckTx before
// it commits. It costs no round trip.
func MarkedTx(o pgx.TxOptions) pgx.TxOptions {
	begin := "begin"
	if o.IsoLevel != "" {
		begin += " isolation level " + string(o.IsoLevel)
	}
	if o.AccessMode != "" {
		begin += " " + string(o.AccessMode)
	}
	if o.DeferrableMode != "" {
		begin += " " + string(o.DeferrableMode)
	}
	return pgx.TxOptions{BeginQuery: begin + "; " + MarkTx, CommitQuery: CheckTx + "; commit"}
}
