package mysql_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestProcesses lists sessions while one of them runs a statement that is no text. The control:
// MySQL can't read its own table of them then.
func TestProcesses(t *testing.T) {
	db := testdb.MySQL(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var id int64
	var version, user, database string
	row := conn.QueryRowContext(ctx, "SELECT CONNECTION_ID(), VERSION(), SUBSTRING_INDEX(USER(), '@', 1), DATABASE()")
	if err := row.Scan(&id, &version, &user, &database); err != nil {
		t.Fatal(err)
	}

	asleep, wake := context.WithCancel(ctx)
	var sleeper sync.WaitGroup
	sleeper.Go(func() { _, _ = conn.ExecContext(asleep, "SELECT SLEEP(60), _binary'\x01\xff' = _binary'a' AND TRUE") })
	defer sleeper.Wait()
	defer wake()
	for sleeping := false; !sleeping; {
		row := db.QueryRowContext(ctx, "SELECT count(*) > 0 FROM information_schema.processlist WHERE id = ? AND command = 'Query'", id)
		if err := row.Scan(&sleeping); err != nil { // so it sleeps, as MySQL says
			if strings.Contains(version, "MariaDB") || !strings.Contains(err.Error(), "3854") {
				t.Fatal(err)
			}
			break
		}
	}

	processes, err := mysql.Processes(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if p.ID == id {
			if p.User != user || p.Host == "" || p.Database != database {
				t.Errorf("%+v: want user %q, database %q and a host", p, user, database)
			}
			return
		}
	}
	t.Errorf("session %d is not among %+v", id, processes)
}
