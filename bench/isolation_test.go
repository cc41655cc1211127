package bench

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
)

// TestIsolationsRun runs every scenario for a moment: what is measured is done, though the neighbour's key is locked.
func TestIsolationsRun(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		for _, s := range isolations() {
			t.Run(string(kind)+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				env := &Env{Kind: kind, Server: testdb.Server(t, kind), DSN: testdb.DSN(t, kind), Clients: 1, Conns: s.Conns[0], Rate: 50}
				if err := migrateLimits(t.Context(), env); err != nil {
					t.Fatal(err)
				}
				w, err := s.Open(t.Context(), env)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := w.Close(); err != nil {
						t.Error(err)
					}
				}()
				round, err := w.Round(t.Context(), 0)
				if err != nil {
					t.Fatal(err)
				}
				sample, err := round.run(t.Context(), load{clients: 1, time: 300 * time.Millisecond, watch: quiet})
				if err != nil {
					t.Fatal(err)
				}
				if sample.OK == 0 || sample.Latency.Max <= 0 || sample.totalFailed() > 0 {
					t.Errorf("%+v", sample)
				}
			})
		}
	}
}
