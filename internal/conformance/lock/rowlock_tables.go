package lock

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// tablesWithoutRowLocks: a table whose rows the server can't lock is refused, before a row is read.
func tablesWithoutRowLocks(t *testing.T, h *hall) {
	ctx := suite.Soon(t)
	for table, why := range h.unlockable(t) {
		for _, o := range []dblock.RowLock{{}, {Wait: dblock.NoWait}, {Wait: dblock.SkipLocked}, {Scan: true}} {
			for call, lock := range map[string]func(RowTx) error{
				"LockRow": func(tx RowTx) error { return tx.LockRow(ctx, table, "id", 1, o) },
				"LockRows": func(tx RowTx) error {
					_, err := tx.LockRows(ctx, table, "id", []int64{2, 1}, o)
					return err
				},
				"Claim": func(tx RowTx) error {
					_, err := tx.Claim(ctx, dblock.RowLock{Scan: o.Scan}, 1, "SELECT id FROM "+table+" ORDER BY id")
					return err
				},
				"Claim of a join": func(tx RowTx) error {
					_, err := tx.Claim(ctx, dblock.RowLock{Scan: o.Scan}, 1, "SELECT s.id FROM seat s, "+table+" AS x WHERE s.id = 1 AND x.id = 1")
					return err
				},
			} {
				tx := h.tx(t)
				if err := lock(tx); !errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), why) {
					t.Errorf("%s of %s, %+v: %v, want it unsupported for %q", call, table, o, err, why)
				}
				require.NoError(t, tx.Rollback(ctx), "rollback")
			}
		}
	}
	// A sub-select may name a table without row locks: its rows are not locked.
	if h.e.Kind != devdb.Postgres {
		_, err := h.tx(t).Claim(ctx, dblock.RowLock{Scan: true}, 1, "SELECT id FROM seat WHERE id IN (SELECT id FROM in_myisam) ORDER BY id")
		require.NoError(t, err, "a sub-select")
	}
}

// unlockable makes tables without row locks, each with a word of the error's.
func (h *hall) unlockable(t *testing.T) map[string]string {
	t.Helper()
	if h.e.Kind == devdb.Postgres {
		for _, statement := range []string{
			"CREATE FOREIGN DATA WRAPPER elsewhere", "CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere",
			"CREATE FOREIGN TABLE outside (id BIGINT NOT NULL) SERVER elsewhere",
			"CREATE TABLE halves (id BIGINT NOT NULL) PARTITION BY LIST (id)",
			"CREATE TABLE half_here PARTITION OF halves FOR VALUES IN (1)",
			"CREATE FOREIGN TABLE half_outside PARTITION OF halves FOR VALUES IN (2) SERVER elsewhere",
			`CREATE VIEW "Seen" AS SELECT id FROM outside`, "CREATE VIEW seen_too AS SELECT id FROM \"Seen\"",
		} {
			h.exec(t, statement)
		}
		return map[string]string{"outside": "outside", "halves": "half_outside", "seen_too": "outside"}
	}
	engines := map[string]string{"in_myisam": "MyISAM", "in_memory": "MEMORY"}
	if h.e.Kind == devdb.MariaDB {
		engines["in_aria"] = "Aria"
	}
	for table, engine := range engines {
		h.exec(t, "CREATE TABLE "+table+" (id BIGINT PRIMARY KEY, note VARCHAR(20) COMMENT ') ENGINE=InnoDB') ENGINE="+engine+
			" COMMENT=') ENGINE=InnoDB'")
		h.exec(t, "INSERT INTO "+table+" (id) VALUES (1), (2)")
	}
	h.exec(t, "CREATE VIEW on_view AS SELECT id FROM in_myisam")
	engines["on_view"] = "view"
	return engines
}
