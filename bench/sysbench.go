package bench

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/devdb"
)

// sysbench runs a Lua script of the user's on MySQL or MariaDB. P50, P95 and the deviation of its
// latencies are unknown.
type sysbench struct {
	*program

	config *mysql.Config
}

const sysbenchHint = "most distributions have a package of that name"

func openSysbench(ctx context.Context, env *Env, f scriptFlags) (Workload, error) {
	s := &sysbench{}
	var err error
	if s.config, err = devdb.ParseMySQL(env.DSN); err != nil {
		return nil, err
	}
	if s.program, err = newProgram(env, f, nil, sysbenchHint, "sysbench"); err != nil {
		return nil, err
	}
	return s, setUpMySQL(ctx, s.config, f.setup)
}

func (s *sysbench) Close() error { return nil }

func (s *sysbench) Round(_ context.Context, n int) (Round, error) {
	return Round{Run: func(ctx context.Context, d time.Duration) (sample Sample, err error) {
		files := map[string][]byte{scriptLua: s.script, sysbenchOptions: s.options(n, d)}
		args := []string{"--config-file=" + sysbenchOptions, scriptLua, "run"}
		err = s.run(ctx, args, files, func(_, out string) error {
			sample, err = readSysbench(out)
			return err
		})
		return sample, err
	}}, nil
}

const sysbenchOptions = "options.cnf"

// options are all in a file: the password must not be an argument, which every user of the machine
// can read.
func (s *sysbench) options(n int, d time.Duration) []byte {
	lines := append(serverOptions("mysql-", s.config),
		"db-driver=mysql", "mysql-user="+s.config.User, "mysql-password="+s.config.Passwd, "mysql-db="+s.config.DBName,
		"threads="+strconv.Itoa(s.env.Clients), "time="+strconv.Itoa(max(1, int(math.Ceil(d.Seconds())))), "events=0",
		"percentile=99", "rand-seed="+strconv.FormatUint((s.env.Seed+uint64(n))%math.MaxInt32, 10))
	for name, value := range s.defined {
		lines = append(lines, name+"="+value)
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

var (
	sysbenchEvents  = regexp.MustCompile(`(?m)^ *total number of events: +(\d+)`)
	sysbenchTime    = regexp.MustCompile(`(?m)^ *total time: +([0-9.]+)s`)
	sysbenchIgnored = regexp.MustCompile(`(?m)^ *ignored errors: +(\d+)`)
	sysbenchLatency = regexp.MustCompile(`(?m)^ *(avg|max|99th percentile): +([0-9.]+)`)

	errNoEvents = errors.New("no number of events or no total time")
)

// readSysbench takes the counts: an event is a call of the script's event().
func readSysbench(out string) (Sample, error) {
	events, total := sysbenchEvents.FindStringSubmatch(out), sysbenchTime.FindStringSubmatch(out)
	if events == nil || total == nil {
		return Sample{}, errNoEvents
	}
	ok, err1 := strconv.ParseInt(events[1], 10, 64)
	seconds, err2 := strconv.ParseFloat(total[1], 64)
	s := Sample{OK: ok, Failed: map[string]int64{}, Elapsed: time.Duration(seconds * float64(time.Second))}
	err := errors.Join(err1, err2)
	if m := sysbenchIgnored.FindStringSubmatch(out); m != nil && m[1] != "0" {
		ignored, bad := strconv.ParseInt(m[1], 10, 64)
		s.Failed["ignored_error"], err = ignored, errors.Join(err, bad) // a deadlock; the event is run again
	}
	for _, m := range sysbenchLatency.FindAllStringSubmatch(out, -1) {
		ms, bad := strconv.ParseFloat(m[2], 64)
		err = errors.Join(err, bad)
		switch m[1] {
		case "avg":
			s.Latency.Mean = ms
		case "max":
			s.Latency.Max = ms
		default:
			s.Latency.P99 = ms
		}
	}
	return s, err
}
