package inventory

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// allotmentsSurviveProcesses has 8 processes sell one SKU. One is killed in the middle, one is stopped, taken for dead and goes on;
// what both have left is given back beside the sale. Then there is one buyer for each unit that is left, and none is refused.
func allotmentsSurviveProcesses(t *testing.T, s *env) {
	const processes, each, stock = 8, 40, 1600
	s.keepsBooks(t)
	s.stock(t, "sale", stock)
	var all []*process
	for p := range processes { // one after the other, so that their allotments have their numbers
		all = append(all, s.startProcess(t, inventory.Options{Allotment: 50, Timeout: time.Minute}))
		all[p].sells(t, fmt.Sprintf("first of %d", p))
	}
	killed, stopped, alive := all[0], all[1], all[2:]
	var crowd sync.WaitGroup
	half := make(chan struct{}, each)
	for p, process := range all {
		for i := range each {
			crowd.Go(func() {
				r, err := process.do(t.Context(), op{What: toReserve, Request: order(fmt.Sprintf("%d-%d", p, i), "sale", int64(1+i%5))})
				switch {
				case process == killed && err == nil:
					half <- struct{}{}
				case process != killed && (err != nil || r.State != inventory.Sold):
					t.Errorf("%d-%d: %+v, %v", p, i, r, err)
				}
			})
		}
	}
	<-half
	killed.kill()
	crowd.Wait()
	for i := range each { // whoever got no answer asks elsewhere
		r, err := s.Reserve(t.Context(), order(fmt.Sprintf("0-%d", i), "sale", int64(1+i%5)))
		if err != nil {
			t.Errorf("0-%d: %+v, %v", i, r, err)
		}
	}
	s.stopsAndTakesForDead(t, stopped)
	left := s.balance(t, "sale").Available + s.balance(t, "sale").Allotted
	if left < 100 {
		t.Fatalf("%d are left: too few to show anything", left)
	}
	s.sellsOneByOne(t, "while one is stopped", alive, left/2)
	_ = suite.Resume(stopped.cmd.Process)
	s.sellsOneByOne(t, "all", all[1:], left-left/2)
	for p, process := range all[1:] {
		r, err := process.do(t.Context(), op{What: toReserve, Request: order(fmt.Sprintf("late %d", p), "sale", 1)})
		if err != nil || r.Kind != isSoldOut {
			t.Errorf("all is sold, and process %d says %+v, %v", p, r, err)
		}
	}
	s.wantsBooks(t, "sale", 0, 0, stock)
	s.balanced(t)
}

func (p *process) sells(t *testing.T, key string) {
	t.Helper()
	r, err := p.do(t.Context(), op{What: toReserve, Request: order(key, "sale", 1)})
	if err != nil || r.State != inventory.Sold {
		t.Fatalf("%s: %+v, %v", key, r, err)
	}
}

// stopsAndTakesForDead stops a process which has an allotment that is not empty, and gives back what it and others that are gone have.
func (s *env) stopsAndTakesForDead(t *testing.T, p *process) {
	t.Helper()
	p.sells(t, "before the stop")
	if err := suite.Suspend(p.cmd.Process); err != nil {
		t.Fatal(err)
	}
	s.exec(t, `DELETE FROM dblock_member WHERE member_id IN (
		SELECT l.member_id FROM dblock_lease l WHERE l.lease_key IN ('dblock allotment 0', 'dblock allotment 1'))`)
	if _, err := s.openClosed(t, s.o).Sweep(t.Context(), 10); err != nil {
		t.Error(err)
	}
	if n := s.count(t, "SELECT sum(available) FROM dblock_stock WHERE bucket IN (1048576, 1048577)"); n != 0 {
		t.Errorf("the sweep left %d units with the dead", n)
	}
}

// sellsOneByOne has so many orders for a unit each sent by processes, and none refused.
func (s *env) sellsOneByOne(t *testing.T, name string, by []*process, orders int64) {
	t.Helper()
	var crowd sync.WaitGroup
	var mu sync.Mutex
	var refused []string
	for i := range orders {
		crowd.Go(func() {
			r, err := by[i%int64(len(by))].do(t.Context(), op{What: toReserve, Request: order(fmt.Sprintf("%s %d", name, i), "sale", 1)})
			if err != nil || r.State != inventory.Sold {
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, fmt.Sprintf("%+v, %v", r, err))
			}
		})
	}
	crowd.Wait()
	if len(refused) > 0 {
		t.Errorf("%s: %d of %d were refused what is there: %s", name, len(refused), orders, strings.Join(refused[:1], ""))
	}
}
