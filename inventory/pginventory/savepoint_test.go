package pginventory

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/db/pgdb"
)

// closes is a transaction whose connection is closed when it is to be rolled back.
type closes struct{ pgdb.DBTX }

var errClosed = errors.New("conn closed")

func (closes) Exec(_ context.Context, sql string, _ ...any) (pgconn.CommandTag, error) {
	if strings.HasPrefix(sql, "rollback") {
		return pgconn.CommandTag{}, errClosed
	}
	return pgconn.CommandTag{}, nil
}

// TestARefusalWhoseContextEnds: a refusal that can't be rolled back to its savepoint returns the
// error of its context.
func TestARefusalWhoseContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := callerTx{on: closes{}}.below(ctx, func() error { cancel(); return errNothing })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, errClosed) || errors.Is(err, errNothing) {
		t.Errorf("%v, want that the context has ended and the connection is closed", err)
	}
}
