package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

// scriptFlags is a script, and how another benchmark program has to run it.
type scriptFlags struct {
	file    string
	setup   string // a file of SQL that is run once before; may be empty
	defined map[string]string
}

// scripts returns the scenarios that run a script: programs other than dblock, to hold ours
// against. A file that ends in .lua is one of sysbench.
func scripts(f scriptFlags) []Scenario {
	mysqlFamily := []devdb.Kind{devdb.MariaDB, devdb.MySQL}
	if filepath.Ext(f.file) == ".lua" {
		return []Scenario{{
			Name: "sysbench", About: "sysbench with " + f.file, Engines: mysqlFamily,
			Open: func(ctx context.Context, env *Env) (Workload, error) { return openSysbench(ctx, env, f) },
		}}
	}
	return []Scenario{{
		Name: "pgbench", About: "pgbench with " + f.file, Engines: []devdb.Kind{devdb.Postgres},
		Open: func(ctx context.Context, env *Env) (Workload, error) { return openPgbench(ctx, env, f) },
	}, {
		Name: "slap", About: "mariadb-slap or mysqlslap with " + f.file, Engines: mysqlFamily,
		Open: func(ctx context.Context, env *Env) (Workload, error) { return openSlap(ctx, env, f) },
	}}
}

// isScript reports whether only --file has a scenario of that name.
func isScript(name string) bool { return name == "pgbench" || name == "slap" || name == "sysbench" }

// program is another benchmark program, which runs in a folder of its own.
type program struct {
	scriptFlags

	env     *Env
	path    string
	script  []byte
	environ []string // beside those of this process
}

// The names of files in the folder of a run. Arguments hold no other path: pgbench gives @ in one a
// meaning.
const (
	scriptSQL = "script.sql"
	scriptLua = "script.lua"
)

// newProgram looks for the program beside the server first, then in the folders, then on the PATH.
func newProgram(env *Env, f scriptFlags, folders []string, hint string, names ...string) (*program, error) {
	if env.Server != nil && filepath.IsAbs(env.Server.Source) { // the folder that it was started from
		folders = slices.Concat([]string{env.Server.Source}, folders)
	}
	p := &program{env: env, scriptFlags: f}
	var err error
	if p.path, err = findProgram(folders, names); err != nil {
		return nil, fmt.Errorf("%s is not installed: %s", strings.Join(names, " or "), hint)
	}
	p.script, err = os.ReadFile(f.file)
	return p, err
}

// findProgram returns the first of the names in the first folder that has one. Of the folders that
// fit a pattern, the one with the highest version is the first.
func findProgram(patterns, names []string) (string, error) {
	for _, pattern := range patterns {
		folders, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		slices.SortStableFunc(folders, func(a, b string) int { return cmp.Compare(majorVersion(b), majorVersion(a)) })
		for _, folder := range folders {
			for _, name := range names {
				if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
					return path, nil
				}
			}
		}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
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

func (p *program) threads() string {
	return strconv.Itoa(min(p.env.Clients, runtime.GOMAXPROCS(0)))
}

// run runs the program in a new folder with these files, has read take what it wrote there, and
// deletes the folder.
func (p *program) run(ctx context.Context, args []string, files map[string][]byte, read func(dir, out string) error) error {
	dir, err := os.MkdirTemp(p.env.Dir, "bench-")
	if err != nil {
		return err
	}
	return errors.Join(p.runIn(ctx, dir, args, files, read), os.RemoveAll(dir))
}

func (p *program) runIn(ctx context.Context, dir string, args []string, files map[string][]byte, read func(dir, out string) error) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir = dir
	cmd.Env = slices.Concat(os.Environ(), p.environ, []string{"LC_ALL=C"})
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	killWithChildren(cmd)
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	name := filepath.Base(p.path)
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, p.complaint(out.String(), diagnostics.String()))
	}
	if err := read(dir, out.String()); err != nil {
		return fmt.Errorf("%s: %w in its output:\n%s%s", name, err, &out, &diagnostics)
	}
	return nil
}

// complaint is the first lines of what the program wrote, with the name of the user's file.
func (p *program) complaint(outputs ...string) string {
	text := strings.TrimSpace(outputs[len(outputs)-1])
	if text == "" { // sysbench writes errors on its standard output
		text = strings.TrimSpace(outputs[0])
	}
	var lines []string
	for line := range strings.Lines(strings.NewReplacer(scriptSQL, p.file, scriptLua, p.file).Replace(text)) {
		if len(lines) < 8 {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}
