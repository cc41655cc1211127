package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// The books have to balance at every commit, and not only when somebody looks. Triggers write down by how much each statement
// changes an account, and in which transaction: what the transaction has done to it must come to nothing. The library does not
// know of them.

// entries are what a row of a table adds to accounts: that of its SKU, and that of what a buyer may have of it.
var entries = []struct{ table, name, account, adds string }{
	{"dblock_stock", "''", "%[1]s.sku", "-%[1]s.available"},
	{"dblock_adjustment", "%[1]s.adjustment_id", "%[1]s.sku", "%[1]s.delta"},
	{"dblock_reservation", "%[1]s.reservation_key", "%[1]s.sku",
		"CASE WHEN %[1]s.state IN (1, 2) AND %[1]s.bucket >= 0 THEN -%[1]s.qty ELSE 0 END"},
	{"dblock_reservation", "''", "concat(%[1]s.sku, '/', %[1]s.buyer)",
		"CASE WHEN %[1]s.state IN (1, 2) AND %[1]s.limited THEN %[1]s.qty ELSE 0 END"},
	{"dblock_quota", "''", "concat(%[1]s.sku, '/', %[1]s.buyer)", "-%[1]s.used"},
}

// keepsBooks has all that is written from now on written down. seq grows with each entry; where two transactions wait for a
// row of each other's, it stands for the order of their commits.
func (s *env) keepsBooks(t *testing.T) {
	t.Helper()
	switch s.e.Kind {
	case devdb.Postgres:
		s.exec(t, `CREATE TABLE suite_entry (seq bigserial PRIMARY KEY, tx bigint NOT NULL DEFAULT txid_current(),
			account text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, adds bigint NOT NULL)`)
	case devdb.MariaDB: // a table with system versioning notes the transaction of each row
		s.exec(t, `CREATE TABLE suite_entry (seq BIGINT AUTO_INCREMENT PRIMARY KEY, account VARBINARY(600) NOT NULL,
			name VARBINARY(255) NOT NULL, adds BIGINT NOT NULL, tx BIGINT UNSIGNED GENERATED ALWAYS AS ROW START,
			gone BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (tx, gone)) WITH SYSTEM VERSIONING`)
	default:
		s.exec(t, `CREATE TABLE suite_entry (seq BIGINT AUTO_INCREMENT PRIMARY KEY, account VARBINARY(600) NOT NULL,
			name VARBINARY(255) NOT NULL, adds BIGINT NOT NULL, tx VARCHAR(60) NOT NULL)`)
	}
	bodies := make(map[string][2]string) // by table: of the row that was, and of the one that is
	for _, e := range entries {
		body := bodies[e.table]
		body[0] += s.entry("OLD", e.account, e.name, "-("+e.adds+")")
		body[1] += s.entry("NEW", e.account, e.name, e.adds)
		bodies[e.table] = body
	}
	for table, body := range bodies {
		s.writesDown(t, table, body[0], body[1])
	}
}

// entry is the statement that writes one down.
func (s *env) entry(row, account, name, adds string) string {
	columns, values := "account, name, adds", fmt.Sprintf(account+", "+name+", "+adds, row)
	if s.e.Kind == devdb.MySQL {
		columns += ", tx"
		values += `, (SELECT concat(e.thread_id, '/', e.event_id) FROM performance_schema.events_transactions_current e
			WHERE e.thread_id + 0 = ps_current_thread_id())` // + 0: the index does not find every thread
	}
	return fmt.Sprintf("INSERT INTO suite_entry (%s) VALUES (%s);\n", columns, values)
}

func (s *env) writesDown(t *testing.T, table, was, is string) {
	t.Helper()
	if s.e.Kind == devdb.Postgres {
		s.exec(t, fmt.Sprintf(`CREATE FUNCTION suite_%[1]s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF TG_OP <> 'INSERT' THEN %[2]s END IF;
			IF TG_OP <> 'DELETE' THEN %[3]s END IF;
			RETURN NULL; END $$`, table, was, is))
		s.exec(t, fmt.Sprintf(`CREATE TRIGGER suite_%[1]s AFTER INSERT OR UPDATE OR DELETE ON %[1]s
			FOR EACH ROW EXECUTE FUNCTION suite_%[1]s()`, table))
		return
	}
	for event, body := range map[string]string{"INSERT": is, "UPDATE": was + is, "DELETE": was} {
		s.exec(t, fmt.Sprintf("CREATE TRIGGER suite_%[1]s_%[2]s AFTER %[2]s ON %[1]s FOR EACH ROW BEGIN\n%[3]sEND", table, event, body))
	}
}

// unbalanced are the transactions after which an account was off.
func (s *env) unbalanced(t *testing.T) (faults []string) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(),
		"SELECT tx, account, sum(adds) FROM suite_entry GROUP BY tx, account HAVING sum(adds) <> 0 ORDER BY tx")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var tx, account string
		var adds int64
		if err := rows.Scan(&tx, &account, &adds); err != nil {
			t.Fatal(err)
		}
		faults = append(faults, fmt.Sprintf("transaction %s left the account of %q off by %d", tx, account, adds))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return faults
}

// balanced fails where the books were ever off.
func (s *env) balanced(t *testing.T) {
	t.Helper()
	if s.count(t, "SELECT count(*) FROM suite_entry") == 0 {
		t.Error("nothing was written down: this shows nothing")
	}
	for i, fault := range s.unbalanced(t) {
		if i == 10 {
			t.Error("and so on")
			break
		}
		t.Error(fault)
	}
	s.sound(t)
}

// booksAreOffWhereTheyAre is the control: transactions that are wrong for no longer than until the next one, which no look at
// the tables as they are in the end could find.
func booksAreOffWhereTheyAre(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "sale", 10)
	held := inventory.Request{Key: "held", SKU: "sale", Buyer: "ann", Qty: 2, Hold: inventory.MaxHold, Limit: 3}
	if _, err := s.Reserve(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cancel(t.Context(), "held"); err != nil {
		t.Fatal(err)
	}
	s.balanced(t)
	for name, pair := range map[string][2]string{
		"stock that is taken without an order": {
			"UPDATE dblock_stock SET available = available - 1 WHERE sku = 'sale'",
			"UPDATE dblock_stock SET available = available + 1 WHERE sku = 'sale'",
		},
		"an order that takes no stock": {
			"INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ('forged', 'sale', '', 1, 2)",
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
		s.exec(t, pair[0])
		s.exec(t, pair[1])
		if faults := s.unbalanced(t); len(faults) != before+2 {
			t.Errorf("%s, and back: found %s", name, strings.Join(faults[before:], "; "))
		}
	}
	s.sound(t)
}
