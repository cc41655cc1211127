package postgres_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/testdb"
)

func several(what string) string {
	return what + ", so a ctid names several of its rows: make it one table"
}

// TestWeakerConstraintsAreRefused: a key or a CHECK of the right name excludes less than that of
// the migrations.
func TestWeakerConstraintsAreRefused(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.MigratedPostgres(t), t.Context()
	const (
		noKey   = "ALTER TABLE dblock_quota DROP CONSTRAINT dblock_quota_pkey"
		noCheck = "ALTER TABLE dblock_quota DROP CONSTRAINT dblock_quota_used"
		key     = "index dblock_quota.dblock_quota_pkey is "
		check   = "check dblock_quota.dblock_quota_used is "
		used    = `"CHECK (((used >= 0) AND (used <= most)))"`
	)
	addCheck := noCheck + ", ADD CONSTRAINT dblock_quota_used CHECK "
	cases := map[string]string{
		noKey: key + "missing",
		noKey + ", ADD CONSTRAINT dblock_quota_pkey PRIMARY KEY (sku, buyer) DEFERRABLE":              key + `"unique sku, buyer deferrable" instead of "unique sku, buyer"`,
		noKey + ", ADD CONSTRAINT dblock_quota_pkey UNIQUE (sku, buyer) INITIALLY DEFERRED":           key + `"unique sku, buyer deferrable" instead of "unique sku, buyer"`,
		noKey + "; CREATE UNIQUE INDEX dblock_quota_pkey ON dblock_quota (sku, buyer) WHERE used = 0": key + `"unique sku, buyer partial" instead of "unique sku, buyer"`,
		noKey + "; CREATE INDEX dblock_quota_pkey ON dblock_quota (sku, buyer)":                       key + `"sku, buyer" instead of "unique sku, buyer"`,
		`ALTER TABLE dblock_quota RENAME TO was; ALTER INDEX dblock_quota_pkey RENAME TO was_pkey;
			CREATE TABLE dblock_quota (LIKE was INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY HASH (sku);
			ALTER TABLE dblock_quota ADD CONSTRAINT dblock_quota_pkey PRIMARY KEY (sku, buyer)`: "table dblock_quota has " + several("partitions"),
		"CREATE TABLE archive () INHERITS (dblock_quota)": "table dblock_quota has " + several("inheritance"),
		"ALTER TABLE dblock_quota REPLICA IDENTITY NOTHING; CREATE PUBLICATION all_tables FOR ALL TABLES": "table dblock_quota has REPLICA " +
			"IDENTITY NOTHING and is published, so its rows can't be updated: ALTER TABLE dblock_quota REPLICA IDENTITY DEFAULT",
		noCheck:                  check + "missing",
		addCheck + "(used >= 0)": check + `"CHECK ((used >= 0))" instead of ` + used,
		addCheck + "(used BETWEEN 0 AND most OR true)":   check + `"CHECK ((((used >= 0) AND (used <= most)) OR true))" instead of ` + used,
		addCheck + "(used BETWEEN 0 AND most) NOT VALID": check + `"CHECK (((used >= 0) AND (used <= most))) NOT VALID" instead of ` + used,
		"ALTER TABLE dblock_reservation ALTER limited SET DEFAULT true": `column dblock_reservation.limited is ` +
			`"boolean not null default true" instead of "boolean not null default false"`,
	}
	var version int
	if err := pool.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version >= 180000 {
		cases["ALTER TABLE dblock_lease DROP CONSTRAINT dblock_lease_finite, ADD CONSTRAINT dblock_lease_finite CHECK (true) NOT ENFORCED"] =
			`check dblock_lease.dblock_lease_finite is "CHECK (true) NOT ENFORCED" instead of "CHECK (isfinite(held_until)) NOT VALID"`
	}
	for weaken, want := range cases {
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, weaken); err != nil {
			t.Fatalf("%s: %v", weaken, err)
		}
		var wrong *dblock.SchemaError
		if _, err := postgres.RequireSchema(ctx, tx, ""); !errors.As(err, &wrong) || !slices.Equal(wrong.Differences, []string{want}) {
			t.Errorf("%s: %v, want %q", weaken, err, want)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := postgres.RequireSchema(ctx, pool, ""); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// TestSpellingsAreNoDifference: settings of the session change how the server writes definitions.
// So does an owner that writes a CHECK in its own way.
func TestSpellingsAreNoDifference(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.MigratedPostgres(t), t.Context()
	const definition = "SELECT pg_catalog.pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint WHERE conname = $1"
	for prepare, want := range map[string]string{
		"SELECT 1":                             "CHECK (((used >= 0) AND (used <= most)))", // the control
		"SET LOCAL search_path = ''":           "CHECK (((used >= 0) AND (used <= most)))",
		"SET LOCAL quote_all_identifiers = on": `CHECK ((("used" >= 0) AND ("used" <= "most")))`,
		`ALTER TABLE dblock_quota DROP CONSTRAINT dblock_quota_used,
			ADD CONSTRAINT dblock_quota_used CHECK (used >= 0 AND used <= most) NO INHERIT`: "CHECK (((used >= 0) AND (used <= most))) NO INHERIT",
	} {
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, prepare); err != nil {
			t.Fatalf("%s: %v", prepare, err)
		}
		var text string
		if err := tx.QueryRow(ctx, definition, "dblock_quota_used").Scan(&text); err != nil || text != want {
			t.Errorf("the control: %s: %q, %v, want %q", prepare, text, err, want)
		}
		if _, err := postgres.RequireSchema(ctx, tx, "public"); err != nil {
			t.Errorf("%s: %v", prepare, err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
