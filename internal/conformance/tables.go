package conformance

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// isDifferent reports whether an error says that tables of the right version lack an object.
func isDifferent(err error, object string) bool {
	var wrong *dblock.SchemaError
	return errors.As(err, &wrong) && wrong.Have == wrong.Want && errors.Is(err, dblock.ErrSchema) &&
		strings.Contains(strings.Join(wrong.Differences, "\n"), object+" is missing") && strings.Contains(err.Error(), "dblock migrate up")
}

// refusesAutocommitOff opens over connections that commit nothing by themselves, which only MySQL and MariaDB have.
func refusesAutocommitOff(t *testing.T, kind devdb.Kind, dsn string, open func(dsn string) error) error {
	if kind == devdb.Postgres {
		return nil
	}
	if err := open(Appended("autocommit=0")(t, dsn)); !errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), "autocommit") {
		return fmt.Errorf("with autocommit off: %w; want ErrUnsupported that names it", err)
	}
	return nil
}

// leasesCheckTheTables: a Locker is made only over tables that are whole, and over connections that commit.
func leasesCheckTheTables(t *testing.T, v *vault) {
	open := func(dsn string) error {
		l, closePool, err := v.e.Open(t.Context(), dsn, LeaseOptions{})
		if err == nil {
			err = l.Close(t.Context())
			closePool()
		}
		return err
	}
	if err := refusesAutocommitOff(t, v.e.Kind, v.dsn, open); err != nil {
		t.Error(err)
	}
	if err := open(v.dsn); err != nil {
		t.Errorf("the control: %v", err)
	}
	drop := "DROP INDEX dblock_queue_dead_when"
	if v.e.Kind != devdb.Postgres {
		drop += " ON dblock_queue_dead"
	}
	v.exec(t, drop)
	if err := open(v.dsn); !isDifferent(err, "dblock_queue_dead.dblock_queue_dead_when") {
		t.Errorf("an index is missing: %v", err)
	}
	v.exec(t, "ALTER TABLE dblock_lease DROP COLUMN shared")
	if err := open(v.dsn); !isDifferent(err, "dblock_lease.shared") {
		t.Errorf("a column is missing: %v", err)
	}
}
