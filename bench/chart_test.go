package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	pageOfRuns  = "../docs/benchmarks.txt"
	pictureOfIt = "../docs/benchmarks.svg"
)

// TestPictureOfTheDocs draws docs/benchmarks.svg from the tables of docs/benchmarks.txt, and
// compares it with the file. DBLOCK_WRITE_CHART=1 writes the file.
func TestPictureOfTheDocs(t *testing.T) {
	t.Parallel()
	var drawn bytes.Buffer
	if err := pictureOf(t).write(&drawn); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("DBLOCK_WRITE_CHART") != "" {
		if err := os.WriteFile(pictureOfIt, drawn.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(pictureOfIt)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, drawn.Bytes()) {
		t.Errorf("%s does not show the numbers of %s: run this test with DBLOCK_WRITE_CHART=1", pictureOfIt, pageOfRuns)
	}
}

// pictureOf has a sale on each server, and locks beside those of Redis, etcd and Postgres.
func pictureOf(t *testing.T) chart {
	t.Helper()
	page, err := os.ReadFile(pageOfRuns)
	if err != nil {
		t.Fatal(err)
	}
	sale := panel{title: "One hot article, 2,000 buyers: units sold and committed a second"}
	for _, server := range []string{"postgres 15.18", "mariadb 10.11.19", "mysql 9.7.4"} {
		direct := rateIn(t, string(page), server+", 2000 clients", "seckill/direct")
		merge := rateIn(t, string(page), server+", 2000 clients", "seckill/merge")
		name := map[string]string{"postgres": "Postgres", "mariadb": "MariaDB", "mysql": "MySQL"}[strings.Fields(server)[0]]
		sale.bars = append(sale.bars,
			bar{name: name + ", one UPDATE an order", perSecond: direct},
			bar{name: name + ", dblock", perSecond: merge, ours: true, text: fmt.Sprintf("%s (%.0f ×)", thousands(merge), merge/direct)})
	}
	locks := panel{title: "200 callers, a key each: pairs of lock and unlock a second"}
	for _, s := range []struct{ scenario, name string }{
		{"lock/lease", "dblock lease, on disk"}, {"lock/redislock", "Redis (redislock), in memory"},
		{"lock/pgx", "pg_advisory_lock, in memory"}, {"lock/etcd", "etcd, on disk"},
	} {
		rate := rateIn(t, string(page), "postgres 15.18, 200 clients", s.scenario)
		locks.bars = append(locks.bars, bar{name: s.name, perSecond: rate, ours: s.scenario == "lock/lease"})
	}
	return chart{sale, locks}
}

// rateIn is the tps of a scenario in the first table that has the title and the scenario.
func rateIn(t *testing.T, runs, title, scenario string) float64 {
	t.Helper()
	within := false
	for line := range strings.Lines(runs) {
		if strings.HasSuffix(strings.TrimSpace(line), "clients") {
			within = strings.TrimSpace(line) == title
		}
		if fields := strings.Fields(line); within && len(fields) > 2 && fields[0] == scenario {
			rate, err := strconv.ParseFloat(fields[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			return rate
		}
	}
	t.Fatalf("%s has no table %q with %s", pageOfRuns, title, scenario)
	return 0
}

// TestChartEscapes draws names with markup in them.
func TestChartEscapes(t *testing.T) {
	t.Parallel()
	var svg bytes.Buffer
	if err := (chart{{title: "a & b", bars: []bar{{name: "<x>"}}}}).write(&svg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a &amp; b", "&lt;x&gt;", ">0<"} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("%s is not in %s", want, svg.String())
		}
	}
}

// TestChartFile writes the chart of a run into the file of --svg.
func TestChartFile(t *testing.T) {
	t.Parallel()
	run := &benchmark{f: Flags{SVG: filepath.Join(t.TempDir(), "run.svg")}}
	run.chart = chart{{title: "postgres", bars: []bar{{name: "limit/select1", perSecond: 1234567}}}}
	if err := run.writeSVG(); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(run.f.SVG)
	if err != nil || !strings.Contains(string(svg), ">limit/select1<") || !strings.Contains(string(svg), ">1,234,567<") {
		t.Errorf("%v\n%s", err, svg)
	}
	run.f.SVG = t.TempDir()
	if err := run.writeSVG(); err == nil {
		t.Error("a folder passes for a file")
	}
}
