package mysqlinventory

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// TestTheServerEndsLongReads: a read of all reservations ends at the deadline of its context, also
// if the client does not end it. The control has no deadline.
func TestTheServerEndsLongReads(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MySQLOn(t, kind)
			_, err := migrations.Up(t.Context(), db, migrations.Options{})
			require.NoError(t, err)
			ten := "(SELECT 0 AS d" + strings.Repeat(" UNION ALL SELECT 1", 9) + ")"
			_, err = db.ExecContext(t.Context(), "INSERT INTO dblock_reservation (reservation_key, line, sku, bucket, buyer, qty, state, limited) "+
				"SELECT UUID(), 0, 'sku', 0, '', 1, 2, false FROM "+ten+" a, "+ten+" b, "+ten+" c, "+ten+" d, "+ten+" e")
			require.NoError(t, err)
			d := &database{db: mysql.NewDatabase(db, "")}
			d.db.MariaDB = kind == devdb.MariaDB
			read := func(ctx context.Context) error {
				_, err := new(mysqldb.Queries).Balances(t.Context(), d.reads(ctx), mysqldb.BalancesParams{Every: 1, Skus: blobs(nil)})
				return err
			}
			assert.NoError(t, read(t.Context()), "control")
			ctx, cancel := context.WithDeadline(t.Context(), time.Now())
			defer cancel()
			assert.ErrorContains(t, read(ctx), "execution", "the deadline has passed")
		})
	}
}
