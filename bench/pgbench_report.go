package bench

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	reportedOK = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)

	// Up to version 13 there is a second rate, with the time that it took to connect.
	reportedRate = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \((?:without initial connection time|excluding connections establishing)\)`)

	reportedFailures = map[string]*regexp.Regexp{
		"serialization": regexp.MustCompile(`(?m)^number of serialization failures: (\d+)`),
		"deadlock":      regexp.MustCompile(`(?m)^number of deadlock failures: (\d+)`),
	}
)

var (
	errNoNumber    = errors.New("no number of transactions or no tps")
	errNothingDone = errors.New("not one transaction was done")
	errUnreadable  = errors.New("a line that is no transaction")
	errNoLog       = errors.New("it wrote no log")
)

// readReport takes the counts. The time is such that their rate is pgbench's: without what it took
// to connect.
func readReport(out string) (Sample, error) {
	n, rate := reportedOK.FindStringSubmatch(out), reportedRate.FindStringSubmatch(out)
	if n != nil && n[1] == "0" {
		return Sample{}, errNothingDone
	}
	if n == nil || rate == nil {
		return Sample{}, errNoNumber
	}
	ok, err1 := strconv.ParseInt(n[1], 10, 64)
	tps, err2 := strconv.ParseFloat(rate[1], 64)
	if err := errors.Join(err1, err2); err != nil {
		return Sample{}, err
	}
	if tps <= 0 {
		return Sample{}, errNoNumber
	}
	s := Sample{OK: ok, Failed: map[string]int64{}, Elapsed: time.Duration(float64(ok) / tps * float64(time.Second))}
	for kind, pattern := range reportedFailures {
		if m := pattern.FindStringSubmatch(out); m != nil && m[1] != "0" {
			failed, err := strconv.ParseInt(m[1], 10, 64)
			if err != nil {
				return Sample{}, err
			}
			s.Failed[kind] = failed
		}
	}
	return s, nil
}

// readLogs takes the latencies of all transactions that did not fail; every thread has a file.
func readLogs(prefix string) (Latency, error) {
	files, err := filepath.Glob(prefix + ".*")
	if err != nil || len(files) == 0 {
		return Latency{}, errors.Join(errNoLog, err)
	}
	var took []int64
	for _, file := range files {
		if took, err = readLog(took, file); err != nil {
			return Latency{}, err
		}
	}
	return latencyOf(took), nil
}

// readLog appends the microseconds of a file's transactions. Its lines are: client, number of the
// transaction, microseconds or "failed", and more.
func readLog(took []int64, path string) ([]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			return nil, fmt.Errorf("pgbench's log: %w: %q", errUnreadable, lines.Text())
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		switch {
		case err == nil:
			took = append(took, us)
		case !isFailure(fields[2]):
			return nil, fmt.Errorf("pgbench's log: %w: %q", errUnreadable, lines.Text())
		}
	}
	return took, lines.Err()
}

func isFailure(word string) bool {
	return word == "failed" || word == "serialization" || word == "deadlock"
}

// latencyOf is exact: it sorts them.
func latencyOf(took []int64) Latency {
	if len(took) == 0 {
		return Latency{}
	}
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[min(len(took)-1, int(math.Ceil(q*float64(len(took))))-1)]) / 1000
	}
	var all sums
	for _, us := range took {
		all.add(1, float64(us)/1000)
	}
	l := Latency{P50: at(0.50), P95: at(0.95), P99: at(0.99), Max: at(1)}
	l.Mean, l.Stddev = all.meanAndStddev()
	return l
}
