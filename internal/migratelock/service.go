package migratelock

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

// maxServiceBytes is how long the name of a service may be.
const maxServiceBytes = 255

// Service is the schema that stands for a service's own migrations. No schema of a database is
// called like it, so that a migration of the service's may apply dblock's.
func Service(name string) string { return "service\x00" + name }

// CheckService refuses what makes no sense.
func CheckService(name string, timeout time.Duration) error {
	if err := root.CheckText("MigrationOptions.Name", name, 1, maxServiceBytes); err != nil {
		return err
	}
	if timeout < 0 {
		return &dblock.InvalidError{Field: "MigrationOptions.Timeout", Reason: fmt.Sprintf("%v is negative", timeout)}
	}
	return nil
}
