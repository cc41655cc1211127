package inventory

import (
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
)

// controls take one protection out of a database: what the tests hold against the Store's answers must find each.
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
		if s.e.Kind == devdb.Postgres {
			s.exec(t, "ALTER TABLE dblock_reservation DROP CONSTRAINT dblock_reservation_pkey")
		} else {
			s.exec(t, `ALTER TABLE dblock_reservation ADD COLUMN suite_n BIGINT NOT NULL AUTO_INCREMENT, ADD KEY (suite_n),
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
	if s.e.Kind != devdb.Postgres {
		s.exec(t, fmt.Sprintf("CREATE TRIGGER %s BEFORE %s ON %s FOR EACH ROW IF %s THEN SET %s; END IF", name, event, table, where, set))
		return
	}
	s.exec(t, fmt.Sprintf("CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF %s THEN %s; END IF; RETURN NEW; END $$",
		name, where, set))
	s.exec(t, fmt.Sprintf("CREATE TRIGGER %[1]s BEFORE %[2]s ON %[3]s FOR EACH ROW EXECUTE FUNCTION %[1]s()", name, event, table))
}
