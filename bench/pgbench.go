package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/devdb"
)

// pgbench is the program that comes with Postgres.
type pgbench struct {
	*program

	detailed bool // it counts failures by their kind
}

// pgbenchFolders are where packages install it, which is seldom on the PATH.
var pgbenchFolders = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin", "/usr/local/pgsql/bin", "/Applications/Postgres.app/Contents/Versions/*/bin",
}

const pgbenchHint = "the packages of the Postgres server have it"

func openPgbench(ctx context.Context, env *Env, f scriptFlags) (Workload, error) {
	config, err := devdb.ParsePostgres(env.DSN)
	if err != nil {
		return nil, err
	}
	p := &pgbench{}
	if p.program, err = newProgram(env, f, pgbenchFolders, pgbenchHint, "pgbench"); err != nil {
		return nil, err
	}
	p.environ = connectionVariables(config.ConnConfig)
	version, err := exec.CommandContext(ctx, p.path, "--version").Output() // "pgbench (PostgreSQL) 15.18 (Debian …)"
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", p.path, err)
	}
	p.detailed = majorVersion(string(version)) >= 15
	return p, p.setUp(ctx)
}

// setUp has pgbench run the statements of --setup once, one by one: a VACUUM must be alone.
func (p *pgbench) setUp(ctx context.Context) error {
	if p.setup == "" {
		return nil
	}
	text, err := os.ReadFile(p.setup)
	if err != nil {
		return err
	}
	once := *p.program
	once.file = p.setup
	args := []string{"--no-vacuum", "--protocol=simple", "--file=" + scriptSQL, "--transactions=1", "--client=1"}
	return once.run(ctx, args, map[string][]byte{scriptSQL: text}, func(string, string) error { return nil })
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

const pgbenchLog = "log"

func (p *pgbench) run(ctx context.Context, n, seconds int) (sample Sample, err error) {
	files := map[string][]byte{scriptSQL: withClock(p.script)}
	err = p.program.run(ctx, p.args(n, seconds), files, func(dir, out string) error {
		if sample, err = readReport(out); err != nil {
			return err
		}
		sample.Latency, err = readLogs(filepath.Join(dir, pgbenchLog))
		return err
	})
	return sample, err
}

// withClock ends a script in a meta command that does nothing but have pgbench look at the clock
// again. Without one, pgbench logs a transaction that is answered at once with the time of its
// beginning as that of its end. A script of one short statement then often seems to take no time at
// all.
func withClock(script []byte) []byte {
	return slices.Concat(script, []byte("\n\\set dblock_clock 0\n"))
}

func (p *pgbench) args(n, seconds int) []string {
	args := []string{
		"--no-vacuum", "--protocol=prepared", "--file=" + scriptSQL,
		"--client=" + strconv.Itoa(p.env.Clients), "--jobs=" + p.threads(),
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

// connectionVariables say how to reach the server. The password must not be an argument, which
// every user of the machine can read.
func connectionVariables(c *pgx.ConnConfig) []string {
	return []string{
		"PGHOST=" + c.Host, "PGPORT=" + strconv.Itoa(int(c.Port)), "PGUSER=" + c.User,
		"PGPASSWORD=" + c.Password, "PGDATABASE=" + c.Database, "PGSSLMODE=" + sslMode(c),
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
