//go:build unix && !solaris && !aix

package guardian

import (
	"bufio"
	"slices"
	"strings"
	"testing"
)

// TestReportsAnyNumberLeft: the caller reads the report of any number of processes that are left,
// and the reports after it.
func TestReportsAnyNumberLeft(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, maxNamed, maxNamed + 1, 200_000} {
		pids := make([]int, n)
		for i := range pids {
			pids[i] = 1<<22 - n + i // the largest that Linux has
		}
		left := -1
		var named []int
		r := run{Command: Command{Left: func(n int, pids []int) { left, named = n, pids }}}
		lines := bufio.NewScanner(strings.NewReader(reportLeft(pids) + "\nover\n"))
		for lines.Scan() {
			r.report(lines.Text())
		}
		if want := pids[:min(n, maxNamed)]; left != n || !slices.Equal(named, want) || !r.over {
			t.Errorf("of %d the caller learns %d, named %d, want %d; the end arrives: %v", n, left, len(named), len(want), r.over)
		}
	}
}
