package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

// stalls is a database with a table for want of indexes. Texts are checked once a process, so that
// the name is one of its own.
func stalls(t *testing.T, each func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx)) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db, table := testdb.MySQLOn(t, kind), fmt.Sprintf("stall_%d", stallNumber.Add(1))
			for _, statement := range []string{
				"CREATE TABLE " + table + " (id BIGINT PRIMARY KEY, code VARCHAR(20) NOT NULL, sold INT, price INT, area INT, KEY other (area, code))",
				"INSERT INTO " + table + " VALUES (1, 'a', 0, 5, 1), (2, 'b', 0, 4, 1), (3, '3', 0, 3, 1)",
			} {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			each(t, table, db, func() *sql.Tx {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback() })
				return tx
			})
		})
	}
}

var stallNumber atomic.Int64

func isScan(t *testing.T, err error, says string) {
	t.Helper()
	var scan *mysqllock.ScanError
	if !errors.As(err, &scan) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want a scan for %q", err, says)
	}
}

// TestRowsWithoutAnIndexAreRefused: until the index is made, or all are to be locked.
func TestRowsWithoutAnIndexAreRefused(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		lock := func(column string, key any, o dblock.RowLock, beside func()) error {
			tx := begin()
			defer func() { _ = tx.Rollback() }() // a transaction that has read a table keeps its indexes from changing
			err := mysqllock.LockRow(t.Context(), tx, table, column, key, o)
			beside()
			return err
		}
		alone := func() {}
		for range 2 {
			isScan(t, lock("code", "a", dblock.RowLock{}, alone), "(`code`)")
		}
		err := lock("code", "a", dblock.RowLock{Scan: true}, func() {
			if err := lock("id", 2, dblock.RowLock{Wait: dblock.NoWait()}, alone); !errors.Is(err, dblock.ErrNotAcquired) {
				t.Errorf("%v: a scan locks nothing else, and need not be refused", err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := db.ExecContext(t.Context(), "CREATE UNIQUE INDEX by_code ON "+table+" (code)"); err != nil {
			t.Fatal(err)
		}
		err = lock("code", "a", dblock.RowLock{}, func() {
			if err := lock("code", "b", dblock.RowLock{Wait: dblock.NoWait()}, alone); err != nil {
				t.Errorf("beside it: %v", err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		// No index of texts can be searched for a number.
		isScan(t, lock("code", 3, dblock.RowLock{}, alone), "int")
	})
}

// TestADroppedIndexIsLookedForAgain: what was found once may be gone.
func TestADroppedIndexIsLookedForAgain(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		lock := func() error {
			tx := begin()
			defer func() { _ = tx.Rollback() }()
			return mysqllock.LockRow(t.Context(), tx, table, "price", 4, dblock.RowLock{})
		}
		for _, index := range []string{"one", "two"} {
			if _, err := db.ExecContext(t.Context(), "CREATE UNIQUE INDEX "+index+" ON "+table+" (price)"); err != nil {
				t.Fatal(err)
			}
			if index == "two" {
				if _, err := db.ExecContext(t.Context(), "DROP INDEX one ON "+table); err != nil {
					t.Fatal(err)
				}
			}
			if err := lock(); err != nil {
				t.Errorf("by %s: %v", index, err)
			}
		}
	})
}

// TestADroppedColumnIsNotRead: a column beside the index was read with the keys. Then it is
// renamed, or another database has no such column.
func TestADroppedColumnIsNotRead(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		exec := func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		for _, column := range []string{"code", "sold", "price", "area"} {
			for range 2 {
				tx := begin()
				if err := mysqllock.LockRow(t.Context(), tx, table, "id", 2, dblock.RowLock{}); err != nil {
					t.Errorf("before %s is renamed: %v", column, err)
				}
				_ = tx.Rollback()
			}
			exec("ALTER TABLE " + table + " RENAME COLUMN " + column + " TO was_" + column)
		}
		tx := begin()
		defer func() { _ = tx.Rollback() }()
		if err := mysqllock.LockRow(t.Context(), tx, table, "id", 2, dblock.RowLock{}); err != nil {
			t.Error(err)
		}
		if err := mysqllock.LockRow(t.Context(), tx, table, "code", "a", dblock.RowLock{}); err == nil {
			t.Error("there is no such key column")
		}
	})
}

// TestClaimsWithoutAnIndexAreRefused, and those that sort what they have locked.
func TestClaimsWithoutAnIndexAreRefused(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		claim := func(o dblock.RowLock, query string, args ...any) ([]int64, error) {
			tx := begin()
			defer func() { _ = tx.Rollback() }()
			return mysqllock.Claim(t.Context(), tx, o, 1, one, query, args...)
		}
		free := "SELECT id FROM " + table + " WHERE sold = ?"
		for range 2 {
			_, err := claim(dblock.RowLock{}, free, 0)
			isScan(t, err, "no index serves its WHERE")
		}
		_, err := claim(dblock.RowLock{}, "SELECT id FROM "+table+" WHERE sold = 0 ORDER BY id")
		isScan(t, err, "no index serves its WHERE")
		_, err = claim(dblock.RowLock{}, "SELECT id FROM "+table+" ORDER BY price")
		isScan(t, err, "before it is sorted")
		if got, err := claim(dblock.RowLock{Scan: true}, free, 0); err != nil || len(got) != 1 {
			t.Errorf("got %v, %v", got, err)
		}
		if got, err := claim(dblock.RowLock{}, "SELECT id FROM "+table+" ORDER BY id"); err != nil || len(got) != 1 || got[0] != 1 {
			t.Errorf("all of them fit: %v, %v", got, err)
		}
		if _, err := db.ExecContext(t.Context(), "CREATE INDEX by_sold ON "+table+" (sold, price)"); err != nil {
			t.Fatal(err)
		}
		if got, err := claim(dblock.RowLock{}, free, 0); err != nil || len(got) != 1 {
			t.Errorf("got %v, %v", got, err)
		}
		if got, err := claim(dblock.RowLock{}, free+" ORDER BY price", 0); err != nil || len(got) != 1 || got[0] != 3 {
			t.Errorf("the cheapest: %v, %v", got, err)
		}
		if _, err := db.ExecContext(t.Context(), "CREATE INDEX by_code ON "+table+" (code)"); err != nil {
			t.Fatal(err)
		}
		coded := "SELECT id FROM " + table + " WHERE code = ?"
		// Each code is made a number: no index can be searched. MySQL gives back what does not fit,
		// at READ COMMITTED.
		if _, err = claim(dblock.RowLock{}, coded, 3); err != nil || strings.HasSuffix(t.Name(), "/mariadb") {
			isScan(t, err, "no index serves its WHERE")
		}
		if _, err := claim(dblock.RowLock{}, "SELECT id FROM "+table+" USE INDEX (by_code) WHERE code = ?", 3); err != nil {
			isScan(t, err, "make it FORCE INDEX")
		}
		if got, err := claim(dblock.RowLock{}, coded, "3"); err != nil || len(got) != 1 || got[0] != 3 {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// TestClaimsByALongName: names have up to 64 characters, of up to three bytes each.
func TestClaimsByALongName(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		name := strings.Repeat("ж", 32) + strings.Repeat("x", 32)
		if _, err := db.ExecContext(t.Context(), "CREATE INDEX "+name+" ON "+table+" (sold, price)"); err != nil {
			t.Fatal(err)
		}
		query := "SELECT id FROM " + table + " WHERE sold = 0 ORDER BY price"
		if got, err := mysqllock.Claim(t.Context(), begin(), dblock.RowLock{}, 1, one, query); err != nil || len(got) != 1 || got[0] != 3 {
			t.Errorf("got %v, %v", got, err)
		}
		_, err := mysqllock.LockRows(t.Context(), begin(), table, name+"y", []any{1}, dblock.RowLock{})
		if !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("a column of 65 characters: %v", err)
		}
	})
}

// TestClaimsMergeNoIndexes: the server would pass over no row then, and wait. Where no one index
// serves the query, it is a scan.
func TestClaimsMergeNoIndexes(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		rows := make([]string, 3000)
		for i := range rows {
			rows[i] = fmt.Sprintf("(%d, 'a', %d, %d)", i+4, i%50, i%40)
		}
		for _, statement := range []string{
			"ALTER TABLE " + table + " STATS_AUTO_RECALC=0", // the plan would change meanwhile
			"INSERT INTO " + table + " (id, code, sold, price) VALUES " + strings.Join(rows, ","),
			"CREATE INDEX by_sold ON " + table + " (sold)", "CREATE INDEX by_price ON " + table + " (price)", "ANALYZE TABLE " + table,
		} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		bounded := func() *sql.Tx {
			tx := begin()
			if _, err := tx.ExecContext(t.Context(), "SET innodb_lock_wait_timeout = 1"); err != nil {
				t.Fatal(err)
			}
			return tx
		}
		for selects, scan := range map[string]bool{
			"SELECT id FROM %s WHERE sold = 3 AND price = 3": false, "SELECT id FROM %s WHERE sold = 4 OR price = 5": true,
			"# of one\nselect/*+ NO_MRR() */ id FROM %s WHERE sold = ? AND price = 6": false,
		} {
			query, args := fmt.Sprintf(selects, table), []any{}
			if strings.Contains(query, "?") {
				args = append(args, 6)
			}
			claim := func(tx *sql.Tx, scan bool) ([]int64, error) {
				return mysqllock.Claim(t.Context(), tx, dblock.RowLock{Scan: scan}, 1, one, query, args...)
			}
			if scan {
				if _, err := claim(begin(), false); err != nil { // MySQL may read the table for one row
					isScan(t, err, "no index serves its WHERE")
				}
			}
			tx, other := bounded(), bounded()
			first, err := claim(tx, scan)
			second, err2 := claim(other, scan)
			_, _ = tx.Rollback(), other.Rollback()
			if err := errors.Join(err, err2); err != nil || len(first) != 1 || len(second) != 1 || first[0] == second[0] {
				t.Errorf("%s: two claims got %v and %v, %v", query, first, second, err)
			}
		}
		var waits int // the control
		first, second := bounded(), bounded()
		for _, tx := range []*sql.Tx{first, second} {
			rows, err := tx.QueryContext(t.Context(), "SELECT id FROM "+table+" WHERE sold = 3 AND price = 3 LIMIT 1 FOR UPDATE SKIP LOCKED")
			if err == nil {
				for rows.Next() {
				}
				err = errors.Join(rows.Err(), rows.Close())
			}
			if err != nil {
				waits++
			}
		}
		if waits != 1 {
			t.Errorf("the control: %d of 2 plain statements waited", waits)
		}
	})
}

// TestClaimsReadOneIndex, whatever their arguments and their number of rows are. For a rare value
// the server would read another index, and lock all rows of the value before it sorts them.
func TestClaimsReadOneIndex(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		rows := make([]string, 5000)
		for i := range rows {
			area := 7
			if i%200 == 0 {
				area = 8 // is rare
			}
			rows[i] = fmt.Sprintf("(%d, 'a', 0, %d, %d)", i+4, i, area)
		}
		exec := func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		exec("ALTER TABLE " + table + " STATS_AUTO_RECALC=0, DROP INDEX other")
		exec("INSERT INTO " + table + " (id, code, sold, price, area) VALUES " + strings.Join(rows, ","))
		exec("CREATE INDEX by_area ON " + table + " (area)")
		exec("CREATE INDEX by_price ON " + table + " (price)")
		exec("ANALYZE TABLE " + table)
		claim := func(tx *sql.Tx, n int, query string, args ...any) (int, error) {
			got, err := mysqllock.Claim(t.Context(), tx, dblock.RowLock{}, n, one, query, args...)
			return len(got), err
		}
		query := "SELECT id FROM " + table + " WHERE area = ? ORDER BY price"
		for _, area := range []int{7, 8} {
			tx := begin()
			_, err := claim(tx, 1, query, area)
			isScan(t, err, "before it is sorted")
			_ = tx.Rollback() // else its metadata lock keeps the index from being made
		}
		exec("CREATE INDEX by_both ON " + table + " (area, price)")
		for _, area := range []int{7, 8, 7} {
			for range 2 {
				if n, err := claim(begin(), 1, query, area); n != 1 || err != nil {
					t.Errorf("area %d: %d rows, %v", area, n, err)
				}
			}
		}
		all := "SELECT id FROM " + table + " ORDER BY price"
		for _, n := range []int{1, 900, 900} { // of some that others have locked, too
			if got, err := claim(begin(), n, all); got != n || err != nil {
				t.Errorf("%d of the first: %d, %v", n, got, err)
			}
		}
	})
}

// TestClaimsArePlannedAnew: the first arguments need no sorting, and later ones do.
func TestClaimsArePlannedAnew(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		query := "SELECT id FROM " + table + " FORCE INDEX (other) WHERE area = 1 AND code BETWEEN ? AND ? ORDER BY id"
		free := func() (n int) { // as another transaction sees it
			tx := begin()
			defer func() { _ = tx.Rollback() }()
			rows, err := tx.QueryContext(t.Context(), "SELECT id FROM "+table+" ORDER BY id LIMIT 9 FOR UPDATE SKIP LOCKED")
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				n++
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for _, args := range [][]any{{"a", "a"}, {"a", "b"}} {
			tx := begin()
			got, err := mysqllock.Claim(t.Context(), tx, dblock.RowLock{}, 1, one, query, args...)
			if err != nil {
				isScan(t, err, "before it is sorted")
			}
			if n := free(); n != 3-len(got) {
				t.Errorf("%v: %d rows are returned, %v, and %d of 3 are free", args, len(got), err, n)
			}
			_ = tx.Rollback()
		}
		tx := begin() // the control
		rows, err := tx.QueryContext(t.Context(), query+" LIMIT 1 FOR UPDATE SKIP LOCKED", "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		_ = rows.Close()
		if n := free(); n != 1 {
			t.Errorf("the control: %d of 3 are free", n)
		}
	})
}

// TestClaimsBySpatialIndexesAreRefused: MariaDB waits there for rows that others have locked.
func TestClaimsBySpatialIndexesAreRefused(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		for _, statement := range []string{
			"CREATE TABLE cab (id BIGINT PRIMARY KEY, at POINT NOT NULL /*!80003 SRID 0 */, SPATIAL KEY `by place` (at))",
			"INSERT INTO cab SELECT a.id * 3 + b.id, POINT(a.id, b.id) FROM " + table + " a, " + table + " b",
		} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		claim := func(scan bool, hint string) error {
			tx := begin()
			defer func() { _ = tx.Rollback() }()
			_, err := mysqllock.Claim(t.Context(), tx, dblock.RowLock{Scan: scan}, 1, one,
				"SELECT id FROM cab "+hint+" WHERE MBRContains(ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 1,0 0))'), at)")
			return err
		}
		for _, scan := range []bool{false, true} {
			if err := claim(scan, "FORCE INDEX (`by place`)"); !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("by the index, scan %t: %v", scan, err)
			}
		}
		if err := claim(true, "IGNORE INDEX (`by place`)"); err != nil {
			t.Error(err)
		}
	})
}

// TestClaimsOfPartitionsAreScans: the server locks a row of each partition for the one that it
// returns.
func TestClaimsOfPartitionsAreScans(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		for _, statement := range []string{
			"CREATE TABLE parted (id BIGINT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 4", "INSERT INTO parted SELECT id FROM " + table,
		} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		claim := func(scan bool, where string, args ...any) error {
			tx := begin()
			defer func() { _ = tx.Rollback() }()
			_, err := mysqllock.Claim(t.Context(), tx, dblock.RowLock{Scan: scan}, 1, one, "SELECT id FROM parted "+where, args...)
			return err
		}
		const either = "WHERE id IN (?, ?) ORDER BY id"
		if err := errors.Join(claim(true, "ORDER BY id"), claim(false, "WHERE id = 3"), claim(false, either, 1, 1)); err != nil {
			t.Error(err)
		}
		isScan(t, claim(false, "ORDER BY id"), "several partitions")
		isScan(t, claim(false, either, 1, 2), "several partitions")
	})
}

// TestClaimsOfATableThatHasChanged: each claim looks at the table as it is.
func TestClaimsOfATableThatHasChanged(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		exec := func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		query := "SELECT id FROM " + table + " ORDER BY id"
		two := func() (ids []int64, errs []error) {
			first, second := begin(), begin()
			for _, tx := range []*sql.Tx{first, second} {
				got, err := mysqllock.Claim(t.Context(), tx, dblock.RowLock{}, 1, one, query)
				ids, errs = append(ids, got...), append(errs, err)
			}
			_, _ = first.Rollback(), second.Rollback()
			return ids, errs
		}
		works := func() {
			t.Helper()
			for range 2 {
				if ids, errs := two(); errors.Join(errs...) != nil || !slices.Equal(ids, []int64{1, 2}) {
					t.Errorf("two claims got %v, %v", ids, errs)
				}
			}
		}
		refused := func(what string, is func(error) bool) {
			t.Helper()
			for range 2 {
				ids, errs := two()
				if len(ids) > 0 || !is(errs[0]) || !is(errs[1]) {
					t.Errorf("%s: two claims got %v, %v", what, ids, errs)
				}
			}
		}
		unsupported := func(err error) bool { return errors.Is(err, dblock.ErrUnsupported) }
		for what, view := range map[string]string{
			"UNION":     "CREATE VIEW %[1]s AS SELECT * FROM %[1]s_old UNION ALL SELECT * FROM %[1]s_old WHERE id > 9",
			"TEMPTABLE": "CREATE ALGORITHM = TEMPTABLE VIEW %[1]s AS SELECT * FROM %[1]s_old",
		} {
			works()
			exec("RENAME TABLE " + table + " TO " + table + "_old")
			scans := func() error {
				tx := begin()
				defer func() { _ = tx.Rollback() }()
				return mysqllock.LockRow(t.Context(), tx, table+"_old", "id", 1, dblock.RowLock{Scan: true})
			}
			if err := scans(); err != nil {
				t.Error(err)
			}
			exec(fmt.Sprintf(view, table))
			refused(what, unsupported)
			exec("RENAME TABLE " + table + "_old TO " + table + "_table, " + table + " TO " + table + "_view")
			exec("CREATE VIEW " + table + "_old AS SELECT * FROM " + table + "_table")
			if err := scans(); !unsupported(err) {
				t.Errorf("LockRow of a view, which was a table: %v", err)
			}
			exec("DROP VIEW " + table + "_old")
			exec("RENAME TABLE " + table + "_table TO " + table + "_old, " + table + "_view TO " + table)
			exec("DROP VIEW " + table)
			exec("RENAME TABLE " + table + "_old TO " + table)
		}
		works()
		exec("ALTER TABLE " + table + " ENGINE = MyISAM")
		refused("MyISAM", unsupported)
		exec("ALTER TABLE " + table + " ENGINE = InnoDB")
		works()
		exec("ALTER TABLE " + table + " PARTITION BY HASH (id) PARTITIONS 4")
		refused("partitions", func(err error) bool { return errors.As(err, new(*mysqllock.ScanError)) })
	})
}

// TestClaimsDoNotAggregate: the server would lock all rows for the one that it makes of them.
// Claims look at no row before they lock, so that the transaction reads later ones afterwards.
func TestClaimsDoNotAggregate(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		text := func(rows *sql.Rows) (string, error) {
			var s sql.NullString
			err := rows.Scan(&s)
			return s.String, err
		}
		for query, want := range map[string]error{
			"SELECT (COUNT(*)) FROM %s":                                             dblock.ErrInvalid,
			"SELECT COALESCE(MIN(id), 0) FROM %s WHERE id > ? # the end":            dblock.ErrInvalid,
			"SELECT ABS(SUM(id)) FROM %s s ORDER BY 1":                              dblock.ErrInvalid,
			"SELECT STD(id) FROM %s":                                                dblock.ErrInvalid,
			"SELECT VAR_POP(id) FROM %s USE INDEX (PRIMARY) WHERE id > ? OR id > 0": dblock.ErrInvalid,
			"SELECT (SELECT SUM(s.id)) FROM %s s":                                   dblock.ErrInvalid,
			"SELECT 1 FROM %s ORDER BY COUNT(*)":                                    dblock.ErrInvalid,
			"SELECT DISTINCTROW price FROM %s":                                      dblock.ErrInvalid,
			"SELECT SQL_NO_CACHE DISTINCT price FROM %s":                            dblock.ErrInvalid,
			"SELECT (ROW_NUMBER() OVER (ORDER BY id)) FROM %s":                      dblock.ErrInvalid,
			"SELECT (SELECT MAX(other.id) FROM %[1]s other) FROM %[1]s":             nil,
			"SELECT *, IFNULL(id, 0) FROM %s AS `limit` WHERE id > ? ORDER BY id":   nil,
		} {
			var args []any
			if strings.Contains(query, "?") {
				args = append(args, 0)
			}
			for _, scan := range []bool{false, true} {
				tx := begin()
				_, err := mysqllock.Claim(t.Context(), tx, dblock.RowLock{Scan: scan}, 1, func(rows *sql.Rows) (string, error) {
					if strings.Contains(query, "*,") {
						return "", nil
					}
					return text(rows)
				}, fmt.Sprintf(query, table), args...)
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", query, err, want)
				}
				_ = tx.Rollback()
			}
		}
		tx := begin() // at REPEATABLE READ
		if _, err := mysqllock.Claim(t.Context(), tx, dblock.RowLock{}, 1, one, "SELECT id FROM "+table+" ORDER BY id"); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "UPDATE "+table+" SET price = 9 WHERE id = 3"); err != nil {
			t.Fatal(err)
		}
		var price int
		if err := tx.QueryRowContext(t.Context(), "SELECT price FROM "+table+" WHERE id = 3").Scan(&price); err != nil || price != 9 {
			t.Errorf("the transaction reads %d as it was before the claim, %v", price, err)
		}
	})
}

// TestAnIndexIsLookedForOnce: what is allowed costs no further statement.
func TestAnIndexIsLookedForOnce(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		for n, want := range []int64{4, 1, 1} { // at first SHOW CREATE TABLE, SHOW INDEX and EXPLAIN
			tx := begin()
			before := questions(t, tx)
			if err := mysqllock.LockRow(t.Context(), tx, table, "id", int64(n+1), dblock.RowLock{}); err != nil {
				t.Fatal(err)
			}
			if got := questions(t, tx) - before - 1; got != want { // it is one itself
				t.Errorf("lock %d took %d statements, want %d", n, got, want)
			}
			_ = tx.Rollback()
		}
	})
}

func questions(t *testing.T, tx *sql.Tx) (n int64) {
	t.Helper()
	var name string
	if err := tx.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAReadOnlyTransaction takes no locks, and returns an error.
func TestAReadOnlyTransaction(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, _ func() *sql.Tx) {
		tx, err := db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		err = mysqllock.LockRow(t.Context(), tx, table, "id", 1, dblock.RowLock{})
		if !errors.Is(err, dblock.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
			t.Error(err)
		}
	})
}

// TestMixedSpellings: a row that the server takes for that of several keys is that of each.
func TestMixedSpellings(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		if _, err := db.ExecContext(t.Context(), "CREATE UNIQUE INDEX by_code ON "+table+" (code)"); err != nil {
			t.Fatal(err)
		}
		rows, err := mysqllock.LockRows(t.Context(), begin(), table, "code", []string{"B", "b", "A", "x"},
			dblock.RowLock{Wait: dblock.SkipLocked()})
		if err != nil || !slices.Equal(rows.Locked, []string{"A", "B", "b"}) || rows.Skipped != nil {
			t.Errorf("got %+v, %v", rows, err)
		}
	})
}

// TestManyKeysKeepTheirOrder: more than MariaDB would make a table of.
func TestManyKeysKeepTheirOrder(t *testing.T) {
	stalls(t, func(t *testing.T, table string, db *sql.DB, begin func() *sql.Tx) {
		keys := make([]int64, dblock.MaxSetKeys)
		for i := range keys {
			keys[i] = int64(len(keys) - i)
		}
		rows, err := mysqllock.LockRows(t.Context(), begin(), table, "id", keys, dblock.RowLock{})
		if err != nil || len(rows.Locked) != 3 || rows.Locked[0] != 1 {
			t.Errorf("got %+v, %v", rows, err)
		}
	})
}
