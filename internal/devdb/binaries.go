package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

// binaries are what it takes to run a server from this machine's disk.
type binaries struct {
	kind    Kind
	daemon  string // postgres, mariadbd or mysqld
	install string // initdb or mariadb-install-db; "" if the daemon does it
	version string
}

// findBinaries gives nil when there are none. It is an error when a variable names what is not
// there.
func findBinaries(ctx context.Context, kind Kind) (*binaries, error) {
	if kind == Postgres {
		return findPostgres(ctx)
	}
	return findMySQLFamily(ctx, kind)
}

func findPostgres(ctx context.Context) (*binaries, error) {
	if dir := os.Getenv(envPostgresBin); dir != "" {
		b, err := postgresIn(ctx, dir)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w: name the folder that holds both postgres and initdb",
				envPostgresBin, dir, err)
		}
		return b, nil
	}
	for _, dir := range postgresDirs() {
		if b, err := postgresIn(ctx, dir); err == nil {
			return b, nil
		}
	}
	return nil, nil
}

// The places that packages use. scripts/servers.sh looks into the same ones.
var (
	postgresPlaces = []string{
		"/usr/lib/postgresql/*/bin",              // Debian, Ubuntu
		"/usr/pgsql-*/bin",                       // Postgres' own rpm packages
		"/opt/homebrew/opt/postgresql@*/bin",     // macOS on ARM
		"/usr/local/opt/postgresql@*/bin",        // macOS on Intel
		"/usr/local/pgsql/bin", "/usr/local/bin", // built from source
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	}
	mysqldPlaces = []string{
		"/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/bin", "/usr/local/mysql/bin",
		"/opt/homebrew/opt/mariadb/bin", "/opt/homebrew/opt/mysql/bin",
		"/usr/local/opt/mariadb/bin", "/usr/local/opt/mysql/bin",
	}
)

// postgresDirs has the newest version first where a place holds several.
func postgresDirs() []string {
	var dirs []string
	for _, pattern := range postgresPlaces {
		dirs = append(dirs, newestFirst(pattern)...)
	}
	if p, err := exec.LookPath("postgres"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(p))
		}
	}
	return append(dirs, newestFirst(filepath.Join(serversDir(), "postgres-*", "bin"))...)
}

func postgresIn(ctx context.Context, dir string) (*binaries, error) {
	b := &binaries{kind: Postgres, daemon: filepath.Join(dir, "postgres"), install: filepath.Join(dir, "initdb")}
	if !executable(b.daemon) || !executable(b.install) {
		return nil, errors.New("no postgres and initdb there")
	}
	out, err := output(ctx, b.daemon, "--version") // "postgres (PostgreSQL) 15.18 (Debian …)"
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(out)
	if len(fields) < 3 {
		return nil, fmt.Errorf("%s --version said %q", b.daemon, out)
	}
	b.version = fields[2]
	return b, nil
}

func findMySQLFamily(ctx context.Context, kind Kind) (*binaries, error) {
	named, err := mysqldNamed(ctx)
	if err != nil || named != nil && named.kind == kind {
		return named, err
	}
	for _, path := range mysqldPaths(kind) {
		if b, err := mysqldAt(ctx, path); err == nil && b.kind == kind {
			return b, nil
		}
	}
	return nil, nil
}

// mysqldNamed is the binary at DBLOCK_MYSQLD, or nil when that is not set.
func mysqldNamed(ctx context.Context) (*binaries, error) {
	path := os.Getenv(envMySQLD)
	if path == "" {
		return nil, nil
	}
	b, err := mysqldAt(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w: name a mysqld or mariadbd binary", envMySQLD, path, err)
	}
	return b, nil
}

func mysqldKind(ctx context.Context) (Kind, error) {
	b, err := mysqldNamed(ctx)
	if b == nil {
		return "", err
	}
	return b.kind, nil
}

// mysqldPaths are the candidates. A mysqld may be MariaDB under its old name, and a
// mariadbd never is MySQL.
func mysqldPaths(kind Kind) []string {
	names := []string{"mysqld"}
	if kind == MariaDB {
		names = []string{"mariadbd", "mysqld"}
	}
	var paths []string
	for _, name := range names {
		if p, err := exec.LookPath(name); err == nil {
			paths = append(paths, p)
		}
		for _, dir := range mysqldPlaces {
			paths = append(paths, filepath.Join(dir, name))
		}
		paths = append(paths, newestFirst(filepath.Join(serversDir(), "*", "bin", name))...)
	}
	return paths
}

func mysqldAt(ctx context.Context, path string) (*binaries, error) {
	if !executable(path) {
		return nil, errors.New("no program there")
	}
	out, err := output(ctx, path, "--no-defaults", "--version") // "/usr/sbin/mysqld  Ver 10.11.19-MariaDB-… for …"
	if err != nil {
		return nil, err
	}
	_, text, found := strings.Cut(out, "Ver ")
	if !found {
		return nil, fmt.Errorf("--version said %q", out)
	}
	v := mysqlVersion(text)
	b := &binaries{kind: v.kind, daemon: path, version: v.number}
	if b.kind == MariaDB {
		b.install, err = mariadbInstaller(path)
	}
	return b, err
}

// mariadbInstaller is the script that makes an empty data folder. Packages put it beside the
// daemon or into the bin folder next to sbin or libexec.
func mariadbInstaller(daemon string) (string, error) {
	dirs := []string{filepath.Dir(daemon), filepath.Join(filepath.Dir(daemon), "..", "bin")}
	if real, err := filepath.EvalSymlinks(daemon); err == nil {
		dirs = append(dirs, filepath.Dir(real), filepath.Join(filepath.Dir(real), "..", "bin"),
			filepath.Join(filepath.Dir(real), "..", "scripts"))
	}
	for _, name := range []string{"mariadb-install-db", "mysql_install_db"} {
		for _, dir := range dirs {
			if p := filepath.Join(dir, name); executable(p) {
				return p, nil
			}
		}
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", errors.New("mariadb-install-db is not installed beside it")
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

func output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// newestFirst expands a pattern and sorts 18 before 9, which sorting by text would not.
func newestFirst(pattern string) []string {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil // only a malformed pattern fails
	}
	sort.SliceStable(paths, func(i, j int) bool { return number(paths[i]) > number(paths[j]) })
	return paths
}

// number reads the version out of .../postgresql/15/bin or .../mariadb-11.8/bin; 0 without one.
func number(path string) float64 {
	name := filepath.Base(filepath.Dir(path))
	if strings.HasPrefix(filepath.Base(path), "my") || strings.HasPrefix(filepath.Base(path), "maria") {
		name = filepath.Base(filepath.Dir(filepath.Dir(path)))
	}
	i := strings.IndexAny(name, "0123456789")
	if i < 0 {
		return 0
	}
	n, err := strconv.ParseFloat(name[i:], 64)
	if err != nil {
		return 0
	}
	return n
}
