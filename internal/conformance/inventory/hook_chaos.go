package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

const hookRound = 2 * time.Second

// hooksUnderFaults sells with a hook that writes rows of the owner's, until the server was killed meanwhile, and in a long run for a
// quarter of its time: each order that is sold has its row, and no other has one.
func (s *env) hooksUnderFaults(t *testing.T, n *suite.FaultInjector, seed uint64, lasts time.Duration) {
	t.Helper()
	store := s.hooked(t, &faultconn.Dialer{}, inventory.Options{Timeout: suite.ChaosTimeout}, ownRows)
	kills, end := n.Counts["kill -9"], time.Now().Add(lasts/4)
	for round := 0; round == 0 || time.Now().Before(end) || n.Server != nil && n.Counts["kill -9"] == kills; round++ {
		c := newChaos(s, map[string]*inventory.Store{"hooked": store}, fmt.Sprintf("hooked %d", round), seed+uint64(round))
		c.run(t, n, hookRound)
		for _, fault := range s.ownRowsAmiss(t, c.name) {
			t.Errorf("%s: %s", c.name, fault)
		}
		if t.Failed() {
			return
		}
	}
	s.exec(t, "DELETE FROM own_order WHERE order_key = (SELECT o.order_key FROM (SELECT min(order_key) AS order_key FROM own_order) o)")
	s.exec(t, "INSERT INTO own_order (order_key, n) VALUES ('hooked and forged', 1)")
	if faults := s.ownRowsAmiss(t, "hooked"); len(faults) != 2 {
		t.Errorf("the control: an order without its row and a row without an order, and what is found is %q", faults)
	}
}
