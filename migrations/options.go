package migrations

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/migratelock"
)

// Options say where to migrate and how. The zero value is good for use.
type Options struct {
	// Schema holds the tables, unquoted. On Postgres it is a schema, which Up creates if it is
	// missing; the default is the one in the connection's search_path that has the tables already,
	// or else the first of them. On MySQL and MariaDB it is a database that must exist; the default
	// is the connection's own.
	Schema string

	// Logger logs each migration that was applied. Default: nothing is logged.
	Logger *slog.Logger

	// LockTimeout is how long to wait for another process that migrates the same schema, and then,
	// for each statement, for transactions that use the table that it changes. When it has passed,
	// the error is dblock.ErrBusy and names what is in the way. MySQL and MariaDB wait for whole
	// seconds. The default is 1 minute.
	LockTimeout time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.LockTimeout < 0 {
		return o, &dblock.InvalidError{Field: "Options.LockTimeout", Reason: fmt.Sprintf("%v is negative", o.LockTimeout)}
	}
	o.LockTimeout = cmp.Or(o.LockTimeout, migratelock.DefaultTimeout)
	o.Logger = callback.Logger(o.Logger)
	return o, nil
}
