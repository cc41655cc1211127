package testdb

import (
	"context"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Own is a server that no other test uses and that keeps what it commits. Its settings may be
// changed; it lives as long as the test. args are more arguments of the server. Where servers are
// given and not started it is nil, and the test has nothing to run on.
func Own(tb testing.TB, kind devdb.Kind, args ...string) *devdb.Server {
	tb.Helper()
	s := alive(tb, func(ctx context.Context) (*devdb.Server, error) {
		return devdb.Start(ctx, kind, devdb.Options{Durable: true, Args: args, Fallback: startDocker})
	})
	if s.PID() == 0 {
		tb.Logf("no %s server whose settings are ours: it is given by %s", kind, s.Source)
		return nil
	}
	return s
}

func alive(tb testing.TB, start func(context.Context) (*devdb.Server, error)) *devdb.Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	s, err := start(ctx)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("testdb: %v", err)
		}
	})
	return s
}
