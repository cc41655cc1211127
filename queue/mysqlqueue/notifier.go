package mysqlqueue

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// notifier is driver.Notifier: MySQL and MariaDB have no notifications.
type notifier struct{}

var errNoNotifier = fmt.Errorf("%w: MySQL and MariaDB send no notifications", dblock.ErrUnsupported)

func (notifier) Notify(context.Context, []driver.Notification) error { return errNoNotifier }

func (notifier) Listen(context.Context, func(), func(driver.Notification)) error {
	return errNoNotifier
}
