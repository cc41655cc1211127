package mysqlqueue

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

var errNoHerald = fmt.Errorf("%w: MySQL and MariaDB tell connections of nothing", dblock.ErrUnsupported)

// Tell can't.
func (d *database) Tell(context.Context, []engine.News) error { return errNoHerald }

// Listen can't.
func (d *database) Listen(context.Context, func(), func(engine.News)) error { return errNoHerald }
