package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

// A server that has not started in this time never will; pulling an image counts in.
const startTimeout = 3 * time.Minute

type slot struct {
	once   sync.Once
	server *devdb.Server
	err    error
}

var slots = map[devdb.Kind]*slot{devdb.Postgres: {}, devdb.MariaDB: {}, devdb.MySQL: {}}

// Server is the server of that kind that this process's tests share. A test that kills it must
// restart it, and must not run in parallel with others; better it starts one of its own with
// devdb.Start.
func Server(tb testing.TB, kind devdb.Kind) *devdb.Server {
	tb.Helper()
	s, ok := slots[kind]
	if !ok {
		tb.Fatalf("testdb: unknown kind of server %q", kind)
	}
	s.once.Do(func() { s.server, s.err = start(kind) })
	if s.err != nil {
		tb.Fatalf("testdb: %v", s.err)
	}
	return s.server
}

func start(kind devdb.Kind) (*devdb.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if dockerFirst() {
		if err := dockerUsable(); err != nil {
			return nil, fmt.Errorf("%s=1 asks for Docker: %w", envDocker, err)
		}
		s, err := startDocker(ctx, kind)
		if err == nil {
			logf("%s %s from %s", s.Kind, s.Version, s.Source)
		}
		return s, err
	}
	return devdb.Start(ctx, kind, devdb.Options{Logf: logf, Fallback: startDocker})
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "testdb: "+format+"\n", args...)
}

func closeServers() error {
	errs := []error{dropOriginals()}
	for _, s := range slots {
		if s.server != nil {
			errs = append(errs, s.server.Close())
		}
	}
	return errors.Join(errs...)
}
