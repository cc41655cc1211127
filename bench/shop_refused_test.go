package bench

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
)

// TestRefusedOrders: each hundredth order is refused, as the scenarios say, and the books are right.
func TestRefusedOrders(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			out, _, err := short(t, kind, Flags{JSON: true, Clients: 100}, refusals()...)
			if err != nil {
				t.Fatal(err)
			}
			sold := map[string]int64{}
			for _, r := range parse(t, out) {
				sold[r.Scenario] += r.OK
			}
			for _, s := range refusals() {
				if sold[s.Name] == 0 {
					t.Errorf("%s sold nothing", s.Name)
				}
			}
		})
	}
}
