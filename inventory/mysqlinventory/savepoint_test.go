package mysqlinventory

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/db/mysqldb"
)

// closes is a transaction whose connection is closed when it is to be rolled back.
type closes struct{ mysqldb.DBTX }

var errClosed = errors.New("conn closed")

func (closes) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	if strings.HasPrefix(query, "ROLLBACK") {
		return nil, errClosed
	}
	return nil, nil
}

// TestARefusalWhoseContextEnds: a refusal that can't be rolled back to its savepoint returns the
// error of its context.
func TestARefusalWhoseContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := callerTx{on: closes{}}.below(ctx, "dblock_reserve", func() error { cancel(); return errNothing })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, errClosed) || errors.Is(err, errNothing) {
		t.Errorf("%v, want that the context has ended and the connection is closed", err)
	}
}
