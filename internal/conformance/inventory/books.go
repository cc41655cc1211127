package inventory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// The books have to balance at every commit. Triggers record by how much each statement changes an
// account, and in which transaction: the changes of one transaction must add up to nothing.

// entries are what a row of a table adds to accounts: to that of its SKU, and to that of its
// buyer's limit.
var entries = []struct{ table, name, account, adds string }{
	{"dblock_stock", "''", "%[1]s.sku", "-%[1]s.available"},
	{"dblock_adjustment", "%[1]s.adjustment_id", "%[1]s.sku", "%[1]s.delta"},
	{"dblock_reservation", "%[1]s.reservation_key", "%[1]s.sku",
		"CASE WHEN %[1]s.state IN (1, 2) AND %[1]s.bucket >= 0 THEN -%[1]s.qty ELSE 0 END"},
	{"dblock_reservation", "''", "concat(%[1]s.sku, '/', %[1]s.buyer)",
		"CASE WHEN %[1]s.state IN (1, 2) AND %[1]s.limited THEN %[1]s.qty ELSE 0 END"},
	{"dblock_quota", "''", "concat(%[1]s.sku, '/', %[1]s.buyer)", "-%[1]s.used"},
}

// keepsBooks records all that is written from now on. seq grows with each entry: if transactions
// wait for each other's rows, it is the order of their commits.
func (s *env) keepsBooks(t *testing.T) {
	t.Helper()
	// On MariaDB a table with system versioning records the transaction of each row.
	s.Exec(t, map[devdb.Kind]string{
		devdb.Postgres: `CREATE TABLE suite_entry (seq bigserial PRIMARY KEY, tx bigint NOT NULL DEFAULT txid_current(),
			account text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, adds bigint NOT NULL)`,
		devdb.MariaDB: `CREATE TABLE suite_entry (seq BIGINT AUTO_INCREMENT PRIMARY KEY, account VARBINARY(600) NOT NULL,
			name VARBINARY(255) NOT NULL, adds BIGINT NOT NULL, tx BIGINT UNSIGNED GENERATED ALWAYS AS ROW START,
			gone BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (tx, gone)) WITH SYSTEM VERSIONING`,
		devdb.MySQL: `CREATE TABLE suite_entry (seq BIGINT AUTO_INCREMENT PRIMARY KEY, account VARBINARY(600) NOT NULL,
			name VARBINARY(255) NOT NULL, adds BIGINT NOT NULL, tx VARCHAR(60) NOT NULL)`,
	}[s.e.Kind])
	old, new := map[string]string{}, map[string]string{} // bodies of triggers by table: of the row before and after
	for _, e := range entries {
		old[e.table] += s.entry("OLD", e.account, e.name, "-("+e.adds+")")
		new[e.table] += s.entry("NEW", e.account, e.name, e.adds)
	}
	for table := range old {
		if s.Postgres() {
			s.execf(t, `CREATE FUNCTION suite_%[1]s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF TG_OP <> 'INSERT' THEN %[2]s END IF;
				IF TG_OP <> 'DELETE' THEN %[3]s END IF;
				RETURN NULL; END $$`, table, old[table], new[table])
			s.execf(t, `CREATE TRIGGER suite_%[1]s AFTER INSERT OR UPDATE OR DELETE ON %[1]s
				FOR EACH ROW EXECUTE FUNCTION suite_%[1]s()`, table)
			continue
		}
		bodies := map[string]string{"INSERT": new[table], "UPDATE": old[table] + new[table], "DELETE": old[table]}
		for event, body := range bodies {
			s.execf(t, "CREATE TRIGGER suite_%[1]s_%[2]s AFTER %[2]s ON %[1]s FOR EACH ROW BEGIN\n%[3]sEND", table, event, body)
		}
	}
}

// entry is the statement that records one.
func (s *env) entry(row, account, name, adds string) string {
	columns, values := "account, name, adds", fmt.Sprintf(account+", "+name+", "+adds, row)
	if s.e.Kind == devdb.MySQL {
		columns += ", tx"
		values += `, (SELECT concat(e.thread_id, '/', e.event_id) FROM performance_schema.events_transactions_current e
			WHERE e.thread_id + 0 = ps_current_thread_id())` // + 0: the index does not find every thread
	}
	return fmt.Sprintf("INSERT INTO suite_entry (%s) VALUES (%s);\n", columns, values)
}

// unbalanced are the transactions that left an account off: transaction, account and by how much.
func (s *env) unbalanced(t *testing.T) [][]string {
	t.Helper()
	return s.query(t, `SELECT tx, account, sum(adds) FROM suite_entry
		GROUP BY tx, account HAVING sum(adds) <> 0 ORDER BY tx`)
}

// balanced fails if the books were ever off.
func (s *env) balanced(t *testing.T) {
	t.Helper()
	assert.NotZero(t, s.Count(t, "SELECT count(*) FROM suite_entry"))
	faults := s.unbalanced(t)
	assert.Empty(t, faults[:min(10, len(faults))], "transactions that left an account off: %d", len(faults))
	s.sound(t)
}

// booksAreOffWhereTheyAre is the control: transactions that are wrong until the next one only,
// which the tables do not show in the end.
func booksAreOffWhereTheyAre(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 10)
	s.sells(t, inventory.Request{Key: "held", SKU: "sale", Buyer: "ann", Qty: 2, Hold: inventory.MaxHold, Limit: 3})
	require.NoError(t, suite.Second(s.Cancel(t.Context(), "held")))
	s.balanced(t)
	for name, pair := range map[string][2]string{
		"stock that is taken without an order": {
			"UPDATE dblock_stock SET available = available - 1 WHERE sku = 'sale'",
			"UPDATE dblock_stock SET available = available + 1 WHERE sku = 'sale'",
		},
		"an order that takes no stock": {
			fmt.Sprintf(insertSale, "forged", "sale"),
			"DELETE FROM dblock_reservation WHERE reservation_key = 'forged'",
		},
		"a delivery that never came": {
			"INSERT INTO dblock_adjustment (adjustment_id, sku, delta) VALUES ('forged', 'sale', 1)",
			"DELETE FROM dblock_adjustment WHERE adjustment_id = 'forged'",
		},
		"a limit that is used up by nothing": {
			"UPDATE dblock_quota SET used = used + 1 WHERE buyer = 'ann'",
			"UPDATE dblock_quota SET used = used - 1 WHERE buyer = 'ann'",
		},
	} {
		before := len(s.unbalanced(t))
		s.Exec(t, pair[0])
		s.Exec(t, pair[1])
		assert.Len(t, s.unbalanced(t), before+2, name)
	}
	s.sound(t)
}

// controls take one protection out of a database: what the tests compare the Store's answers with
// must find each.
var controls = map[string]func(*testing.T, *env){
	"stock that does not fall": func(t *testing.T, s *env) {
		s.before(t, "UPDATE", "dblock_stock", "NEW.available < OLD.available", "NEW.available = OLD.available")
	},
	"limits that are not counted": func(t *testing.T, s *env) {
		s.before(t, "INSERT", "dblock_quota", "NEW.used > 0", "NEW.used = 0")
		s.before(t, "UPDATE", "dblock_quota", "NEW.used > 0", "NEW.used = 0")
	},
	"reservations that stay held": func(t *testing.T, s *env) {
		s.before(t, "UPDATE", "dblock_reservation", "NEW.state > OLD.state", "NEW.state = OLD.state")
	},
	"keys that are no keys": func(t *testing.T, s *env) {
		if s.Postgres() {
			s.Exec(t, "ALTER TABLE dblock_reservation DROP CONSTRAINT dblock_reservation_pkey")
		} else {
			s.Exec(t, `ALTER TABLE dblock_reservation ADD COLUMN suite_n BIGINT NOT NULL AUTO_INCREMENT, ADD KEY (suite_n),
				DROP PRIMARY KEY, ADD PRIMARY KEY (reservation_key, line, suite_n)`)
		}
	},
	"stock that does not come back": func(t *testing.T, s *env) {
		s.before(t, "UPDATE", "dblock_stock", "NEW.available > OLD.available", "NEW.available = OLD.available")
	},
}

// before has a trigger change a row that is about to be written.
func (s *env) before(t *testing.T, event, table, where, set string) {
	t.Helper()
	name := fmt.Sprintf("suite_before_%s_%s", table, event)
	if s.Postgres() {
		s.execf(t, `CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN IF %s THEN %s; END IF; RETURN NEW; END $$`, name, where, set)
		s.execf(t, "CREATE TRIGGER %[1]s BEFORE %[2]s ON %[3]s FOR EACH ROW EXECUTE FUNCTION %[1]s()", name, event, table)
		return
	}
	s.execf(t, "CREATE TRIGGER %s BEFORE %s ON %s FOR EACH ROW IF %s THEN SET %s; END IF", name, event, table, where, set)
}
