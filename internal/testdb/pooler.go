package testdb

import (
	"context"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Pooled is the Postgres database of dsn behind a PgBouncer in transaction mode, which lives as long as the test.
func Pooled(tb testing.TB, dsn string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	s, err := devdb.StartPooler(ctx, dsn)
	if err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("testdb: %v", err)
		}
	})
	return s.AdminDSN()
}
