package mysqllock_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestClaimsReadNoOtherTable: a stored function may read a booking as it was before the row was
// locked. It has the name of a function of the server's in another database.
func TestClaimsReadNoOtherTable(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		var here string
		if err := db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&here); err != nil {
			t.Fatal(err)
		}
		const free = " FUNCTION is_free(n BIGINT) RETURNS INT READS SQL DATA RETURN NOT EXISTS (SELECT 1 FROM booking WHERE id = n)"
		for _, statement := range []string{"CREATE TABLE booking (id BIGINT)", "CREATE" + free} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		for where, want := range map[string]error{
			"is_free(id)":               dblock.ErrInvalid,
			"`IS_FREE` # (\n(id)":       dblock.ErrInvalid,
			here + " . is_free(id)":     dblock.ErrInvalid,
			"id = 1 /*! AND id = 1 */":  dblock.ErrInvalid,
			"id IN (1) AND abs(id) = 1": nil,
		} {
			tx := begin()
			_, err := mysqllock.Claim(t.Context(), tx, dblock.RowLock{}, 1, func(rows *sql.Rows) (id int64, err error) {
				err = rows.Scan(&id)
				return id, err
			}, "SELECT id FROM "+table+" WHERE "+where)
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", where, err, want)
			}
			_ = tx.Rollback()
		}
	})
}
