//go:build unix && !solaris && !aix

package devdb

import (
	"fmt"
	"os/exec"
	"runtime"
	"testing"
)

// More busy processes than processors, so that most of them have to wait until they can stop.
func TestFreezeReturnsWhenAllHaveStopped(t *testing.T) {
	t.Parallel()
	n := 4 * runtime.NumCPU()
	// Each child ends by itself within a minute, should this process be killed.
	p, err := startProcess(exec.Command("sh", "-c",
		fmt.Sprintf("for c in $(seq %d); do (i=0; while [ $i -lt 10000000 ]; do i=$((i+1)); done) & done; wait", n)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.kill(); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "all children run", func() bool { return len(children(p.pid)) == n })
	for range 5 {
		if err := freezeTree(p.pid); err != nil {
			t.Fatal(err)
		}
		for _, pid := range append(children(p.pid), p.pid) {
			if !stopped(pid) {
				t.Errorf("process %d goes on after freezeTree returned", pid)
			}
		}
		thawTree(p.pid)
	}
}
