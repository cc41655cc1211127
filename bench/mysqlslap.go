package bench

import (
	"context"
	"database/sql"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/devdb"
)

// slap is mariadb-slap or mysqlslap, which come with the clients of MariaDB and MySQL. It has no
// variables, and measures the time of a whole run: latencies other than the mean are unknown.
type slap struct {
	*program

	config     *mysql.Config
	statements int   // of the script
	scripts    int64 // that one client runs in a round
}

const slapHint = "the packages of the MariaDB client (mariadb-slap) or of the MySQL client (mysqlslap) have it; " +
	"for a script that ends in .lua, sysbench is used instead"

// slapDelimiter ends a statement wherever it is, as mariadb-slap understands it.
const slapDelimiter = ";"

func openSlap(ctx context.Context, env *Env, f scriptFlags) (Workload, error) {
	if len(f.defined) > 0 {
		return nil, errors.New("--define: mariadb-slap and mysqlslap have no variables")
	}
	s := &slap{scripts: 1}
	var err error
	if s.config, err = devdb.ParseMySQL(env.DSN); err != nil {
		return nil, err
	}
	if s.program, err = newProgram(env, f, nil, slapHint, "mariadb-slap", "mysqlslap"); err != nil {
		return nil, err
	}
	for statement := range strings.SplitSeq(string(s.script), slapDelimiter) {
		if strings.TrimSpace(statement) != "" {
			s.statements++
		}
	}
	if s.statements == 0 {
		return nil, fmt.Errorf("%s holds no statement", f.file)
	}
	return s, setUpMySQL(ctx, s.config, f.setup)
}

// setUpMySQL has the server find the ends of the statements: which bytes quote depends on the
// product and its settings.
func setUpMySQL(ctx context.Context, config *mysql.Config, file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	config = config.Clone()
	config.MultiStatements = true
	config.Logger = &mysql.NopLogger{} // the errors say the same
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	if _, err = db.ExecContext(ctx, string(text)); err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return errors.Join(err, db.Close())
}

func (s *slap) Close() error { return nil }

// Round has the clients run more scripts until a run takes as long as the round: the program takes
// a number of statements, not a time.
func (s *slap) Round(context.Context, int) (Round, error) {
	return Round{Run: func(ctx context.Context, d time.Duration) (Sample, error) {
		for {
			sample, err := s.measure(ctx)
			if err != nil || sample.Elapsed >= d*3/4 {
				return sample, err
			}
			factor := 10.0
			if sample.Elapsed > 0 {
				factor = min(factor, 1.1*d.Seconds()/sample.Elapsed.Seconds())
			}
			s.scripts = max(s.scripts+1, int64(float64(s.scripts)*factor))
		}
	}}, nil
}

// measure runs each client's scripts once. The time includes that of the connections.
func (s *slap) measure(ctx context.Context) (sample Sample, err error) {
	const options = "options.cnf"
	clients := int64(s.env.Clients)
	args := []string{
		"--defaults-file=" + options, "--create-schema=" + s.config.DBName, "--no-drop", "--csv",
		"--query=" + scriptSQL, "--delimiter=" + slapDelimiter, "--concurrency=" + strconv.FormatInt(clients, 10),
		"--number-of-queries=" + strconv.FormatInt(clients*s.scripts*int64(s.statements), 10),
	}
	files := map[string][]byte{scriptSQL: s.script, options: clientOptions(s.config)}
	err = s.run(ctx, args, files, func(_, out string) error {
		seconds, err := readSlap(out)
		if err != nil {
			return err
		}
		ok := clients * s.scripts
		sample = Sample{OK: ok, Failed: map[string]int64{}, Elapsed: time.Duration(seconds * float64(time.Second))}
		sample.Latency.Mean = 1000 * seconds / float64(s.scripts)
		return nil
	})
	return sample, err
}

// clientOptions is an option file: the password must not be an argument, which every user of the
// machine can read.
func clientOptions(c *mysql.Config) []byte {
	lines := []string{"[client]", "user=" + quoteOption(c.User), "password=" + quoteOption(c.Passwd)}
	return []byte(strings.Join(append(lines, serverOptions("", c)...), "\n") + "\n")
}

// serverOptions name the server.
func serverOptions(prefix string, c *mysql.Config) []string {
	if c.Net == "unix" {
		return []string{prefix + "socket=" + c.Addr}
	}
	at := strings.LastIndex(c.Addr, ":")
	return []string{prefix + "host=" + strings.Trim(c.Addr[:at], "[]"), prefix + "port=" + c.Addr[at+1:]}
}

func quoteOption(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

var errNoTime = errors.New("no line with the time of the run")

// readSlap returns the seconds of the run: the third column of the only line.
func readSlap(out string) (float64, error) {
	lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil {
		return 0, err
	}
	lines = slices.DeleteFunc(lines, func(columns []string) bool { return len(columns) < 6 })
	if len(lines) != 1 {
		return 0, errNoTime
	}
	return strconv.ParseFloat(lines[0][2], 64)
}
