package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/devdb"
)

// PgbenchScenario has the real pgbench run a script, to hold SQLScenario against. setup is SQL that
// is run once before, and may be empty; defined are variables of the script.
func PgbenchScenario(file, setup string, defined map[string]string) Scenario {
	return Scenario{
		Name: "pgbench", About: "pgbench itself with the script " + file, Engines: []devdb.Kind{devdb.Postgres},
		Open: func(ctx context.Context, env *Env) (Workload, error) {
			return openPgbench(ctx, env, file, setup, defined)
		},
	}
}

type pgbench struct {
	env      *Env
	path     string // of the program
	detailed bool   // it counts failures by their kind
	script   []byte
	file     string
	defined  map[string]string
	server   *pgx.ConnConfig
}

func openPgbench(ctx context.Context, env *Env, file, setup string, defined map[string]string) (Workload, error) {
	cfg, err := devdb.ParsePostgres(env.DSN)
	if err != nil {
		return nil, err
	}
	p := &pgbench{env: env, file: file, defined: defined, server: cfg.ConnConfig}
	source := ""
	if env.Server != nil {
		source = env.Server.Source
	}
	if p.path, err = findPgbench(source); err != nil {
		return nil, err
	}
	if p.script, err = os.ReadFile(file); err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, p.path, "--version").Output() // "pgbench (PostgreSQL) 15.18 (Debian …)"
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", p.path, err)
	}
	p.detailed = majorVersion(string(version)) >= 15
	return p, setUpPostgres(ctx, &p.server.Config, setup)
}

// pgbenchPlaces are where packages put it, which is seldom the PATH.
var pgbenchPlaces = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin", "/usr/local/pgsql/bin", "/Applications/Postgres.app/Contents/Versions/*/bin",
}

var errNoPgbench = errors.New("pgbench is not installed: it comes with the packages of the Postgres server, " +
	"and is looked for beside the server, in /usr/lib/postgresql/*/bin and on the PATH")

// findPgbench looks beside the server first: source is the folder that it was started from, or says
// where else it came from.
func findPgbench(source string) (string, error) {
	dirs := []string{}
	if filepath.IsAbs(source) {
		dirs = append(dirs, source)
	}
	for _, place := range pgbenchPlaces {
		found, err := filepath.Glob(place)
		if err != nil {
			return "", err
		}
		slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(majorVersion(b), majorVersion(a)) })
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		if path, err := exec.LookPath(filepath.Join(dir, "pgbench")); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("pgbench")
	if err != nil {
		return "", errNoPgbench
	}
	return path, nil
}

// majorVersion is the first number of a text; 0 without one.
func majorVersion(text string) int {
	start := strings.IndexAny(text, "0123456789")
	if start < 0 {
		return 0
	}
	end := start
	for end < len(text) && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(text[start:end])
	if err != nil {
		return 0 // more digits than any version has
	}
	return n
}

func (p *pgbench) Close() error { return nil }

// mostSeconds is how long it may run where no transaction comes about in less.
const mostSeconds = 60

func (p *pgbench) Round(_ context.Context, n int) (Round, error) {
	return Round{Run: func(ctx context.Context, d time.Duration) (Sample, error) {
		for seconds := max(1, int(math.Ceil(d.Seconds()))); ; seconds *= 2 {
			sample, err := p.run(ctx, n, seconds)
			// It begins to count before it connects, which can take all of a short round.
			if !errors.Is(err, errNothingDone) || seconds >= mostSeconds {
				return sample, err
			}
		}
	}}, nil
}

// run has it write its files into a folder of its own.
func (p *pgbench) run(ctx context.Context, n, seconds int) (Sample, error) {
	dir, err := os.MkdirTemp(p.env.Dir, "pgbench-")
	if err != nil {
		return Sample{}, err
	}
	sample, err := p.runIn(ctx, dir, n, seconds)
	return sample, errors.Join(err, os.RemoveAll(dir))
}

const (
	pgbenchScript = "script.sql"
	pgbenchLog    = "log"
)

func (p *pgbench) runIn(ctx context.Context, dir string, n, seconds int) (Sample, error) {
	if err := os.WriteFile(filepath.Join(dir, pgbenchScript), withClock(p.script), 0o600); err != nil {
		return Sample{}, err
	}
	cmd := exec.CommandContext(ctx, p.path, p.args(n, seconds)...)
	cmd.Dir = dir // its arguments hold no path then, of which it would misread an @
	cmd.Env = append(os.Environ(), p.environment()...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	killWithChildren(cmd)
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return Sample{}, context.Cause(ctx)
	}
	if err != nil {
		return Sample{}, fmt.Errorf("pgbench: %w: %s", err, p.complaint(said.String()))
	}
	sample, err := readReport(out.String())
	if err != nil {
		return Sample{}, fmt.Errorf("pgbench: %w in its output:\n%s", err, out.String())
	}
	sample.Latency, err = readLogs(filepath.Join(dir, pgbenchLog))
	return sample, err
}

// withClock ends a script in a meta command that does nothing but have pgbench look at the clock
// again. Without one, a transaction that is answered before pgbench has looked away is logged with
// the time of its beginning as that of its end, and a script of one short statement then seems to
// take no time at all, more often than not.
func withClock(script []byte) []byte {
	return slices.Concat(script, []byte("\n\\set dblock_clock 0\n"))
}

func (p *pgbench) args(n, seconds int) []string {
	args := []string{
		"--no-vacuum", "--protocol=prepared", "--file=" + pgbenchScript,
		"--client=" + strconv.Itoa(p.env.Clients), "--jobs=" + strconv.Itoa(min(p.env.Clients, runtime.GOMAXPROCS(0))),
		"--time=" + strconv.Itoa(seconds),
		"--log", "--log-prefix=" + pgbenchLog, "--random-seed=" + strconv.FormatUint(p.env.Seed+uint64(n), 10),
	}
	for name, value := range p.defined {
		args = append(args, "--define="+name+"="+value)
	}
	if p.detailed {
		args = append(args, "--failures-detailed")
	}
	return args
}

// environment says how to reach the server: the password must not stand among the arguments, where
// every user of the machine can read it.
func (p *pgbench) environment() []string {
	return []string{
		"PGHOST=" + p.server.Host, "PGPORT=" + strconv.Itoa(int(p.server.Port)), "PGUSER=" + p.server.User,
		"PGPASSWORD=" + p.server.Password, "PGDATABASE=" + p.server.Database, "PGSSLMODE=" + sslMode(p.server), "LC_ALL=C",
	}
}

// sslMode names what pgx has made of the connection string.
func sslMode(c *pgx.ConnConfig) string {
	other := func(f *pgconn.FallbackConfig) bool {
		return f.Host == c.Host && f.Port == c.Port && (f.TLSConfig == nil) != (c.TLSConfig == nil)
	}
	switch hasOther := slices.ContainsFunc(c.Fallbacks, other); {
	case c.TLSConfig == nil && hasOther:
		return "allow"
	case c.TLSConfig == nil:
		return "disable"
	case hasOther:
		return "prefer"
	default:
		return "require"
	}
}

// complaint is what it said, once for all clients, of the script that it was given.
func (p *pgbench) complaint(said string) string {
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(said, pgbenchScript, p.file)) {
		if len(lines) < 8 {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}
