package optimistic

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/optimistic"
)

// ManyKeys writes as many rows as one call takes, by texts, and rows by UUIDs. Keys that the server
// takes for the same one are refused.
func (tests[DB]) ManyKeys(t *testing.T, b *env[DB]) {
	ctx := t.Context()
	if b.Postgres() {
		b.Exec(t, `CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	}
	b.Exec(t, "CREATE TABLE named (id VARCHAR(20) "+b.by("COLLATE loose", "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")+
		" PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)")
	most := make([]change, optimistic.MaxChanges)
	var rows []string
	for i := range most {
		most[i] = change{Key: fmt.Sprintf("Key %d", i), Expected: 1, Set: set{"balance": i}}
		rows = append(rows, fmt.Sprintf("('key %d', -1, 1)", i))
	}
	b.Exec(t, "INSERT INTO named VALUES "+strings.Join(rows, ", "))
	named := b.ints(t, "named")
	for _, mode := range []optimistic.Mode{optimistic.EachRow, optimistic.AllOrNothing} {
		same := change{Key: "KEY 0", Expected: 1, Set: set{"balance": 5}}
		badInput(t, "two keys of a row", errOf(named.UpdateMany(ctx, b.db, append(most[:9:9], same), mode)))
	}
	b.is(t, -int64(len(most)), "SELECT sum(balance) FROM named")
	must(named.UpdateMany(ctx, b.db, most, optimistic.AllOrNothing))(t)
	b.is(t, int64(len(most)), "SELECT count(*) FROM named WHERE id = "+b.by("'key ' || balance", "CONCAT('key ', balance)"))

	b.Exec(t, "CREATE TABLE tagged (id "+b.by("UUID", "BINARY(16)")+" PRIMARY KEY, n INT NOT NULL, version BIGINT NOT NULL DEFAULT 1)")
	tagged := b.ints(t, "tagged")
	var changes []change
	for i, key := range [][16]byte{{1, 2, 0xff}, {2, 0, '\''}} {
		must(tagged.Upsert(ctx, b.db, key, optimistic.Absent[int64](), set{"n": 0}))(t)
		changes = append(changes, change{Key: key, Expected: 1, Set: set{"n": i + 1}})
	}
	must(tagged.UpdateMany(ctx, b.db, changes, optimistic.AllOrNothing))(t)
	b.is(t, 1, "SELECT count(*) FROM tagged WHERE n = 2 AND "+b.by("id = '02002700-0000-0000-0000-000000000000'", "HEX(id) LIKE '020027%'"))
}
