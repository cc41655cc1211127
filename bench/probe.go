package bench

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/internal/devdb"
)

// probe asks a server about itself, on a connection of its own that is made once and not again:
// what the probe itself sends is recognized by its session. It is for one goroutine at a time.
// Questions and answers are plain text, so that no option of a DSN can change what an answer means.
type probe interface {
	// settings returns those that decide what a result is worth. On Postgres they are those of a
	// session with this DSN: it may go without durability for itself.
	settings(ctx context.Context) (settings, error)

	// freeConnections is how many more sessions the server takes now from users without privileges.
	freeConnections(ctx context.Context) (int, error)

	// logBytes is the position in the log that makes commits durable, in bytes: what was logged
	// between two calls is the difference. On MySQL, though not on MariaDB, it takes the privilege
	// PROCESS.
	logBytes(ctx context.Context) (int64, error)

	// statements is how many statements the server's clients have sent, but for the probe's own:
	// what was sent between two calls is the difference. A statement that was prepared counts when
	// it is executed, and only then; a ping is none, and a client's farewell is one. ok is false
	// if the server doesn't count.
	statements(ctx context.Context) (n int64, ok bool, err error)

	close() error
}

func newProbe(ctx context.Context, kind devdb.Kind, dsn string) (probe, error) {
	switch kind {
	case devdb.Postgres:
		return newPostgresProbe(ctx, dsn)
	case devdb.MariaDB, devdb.MySQL:
		return newMySQLProbe(ctx, kind, dsn)
	}
	return nil, fmt.Errorf("bench: %s can't be asked for its settings", kind)
}
