package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// peer is a product that is no relational database: benchmarks compare with it, and nothing else
// asks for one. The engine runs one of ours; the rest finds binaries and servers of other people.
type peer struct {
	engine   engine
	envURL   string // names the variable with the URL of a running server
	envPath  string // names the variable with the place of the daemon
	daemon   string
	says     string // what stands before the version in the daemon's answer to --version
	needs    string // the versions that usable accepts, in words
	usable   func(version string) bool
	checkURL func(url string) error
	ask      func(ctx context.Context, url string) (serverVersion, error)
}

var peers = map[Kind]*peer{
	Redis: {
		engine: redisEngine{}, envURL: envRedisURL, envPath: envRedisServer, daemon: "redis-server",
		says: "Redis server v=", needs: "Redis 6.2 or later",
		usable:   func(v string) bool { return atLeast(v, 6, 2) }, // set-proc-title came with it
		checkURL: func(url string) error { _, err := parseRedis(url); return err },
		ask:      askRedis,
	},
	Etcd: {
		engine: etcdEngine{}, envURL: envEtcdURL, envPath: envEtcd, daemon: "etcd",
		says: "etcd Version: ", needs: "etcd 3.5.5 or later, or 3.4.21 or later of 3.4",
		usable: etcdUsable, checkURL: checkEtcdURL, ask: askEtcd,
	},
}

// The places that packages use. scripts/servers.sh looks into the same ones.
var peerPlaces = []string{"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"}

// find gives nil when there are no binaries that can be used.
func (p *peer) find(ctx context.Context, kind Kind) (*binaries, error) {
	if path := os.Getenv(p.envPath); path != "" {
		b, err := p.at(ctx, kind, path)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w: name a binary of %s", p.envPath, path, err, p.daemon)
		}
		return b, nil
	}
	var paths []string
	if path, err := exec.LookPath(p.daemon); err == nil {
		paths = append(paths, path)
	}
	for _, dir := range peerPlaces {
		paths = append(paths, filepath.Join(dir, p.daemon))
	}
	for _, path := range paths {
		if b, err := p.at(ctx, kind, path); err == nil {
			return b, nil
		}
	}
	return nil, nil
}

func (p *peer) at(ctx context.Context, kind Kind, path string) (*binaries, error) {
	if !executable(path) {
		return nil, errors.New("no program there")
	}
	out, err := output(ctx, path, "--version")
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(out, p.says)
	fields := strings.Fields(rest)
	if len(fields) == 0 { // Valkey under the name redis-server, for example
		return nil, fmt.Errorf("--version said %q", out)
	}
	if !p.usable(fields[0]) {
		return nil, fmt.Errorf("it is %s, too old to be used: it takes %s", fields[0], p.needs)
	}
	return &binaries{kind: kind, daemon: path, version: fields[0]}, nil
}

func (p *peer) fromURL(ctx context.Context, kind Kind) (*Server, error) {
	url := os.Getenv(p.envURL)
	if url == "" {
		return nil, nil
	}
	return Attach(ctx, kind, url, p.envURL, nil)
}

func (p *peer) notFound(kind Kind) string {
	return fmt.Sprintf("no %[1]s server found (%[2]s). Do one of these: set %[3]s to a running server; "+
		"set %[4]s to a binary of %[5]s; install one (Debian and Ubuntu: scripts/servers.sh peers; "+
		"macOS: brew install %[1]s)", kind, p.needs, p.envURL, p.envPath, p.daemon)
}

// atLeast compares by numbers: 3.10 is newer than 3.9.
func atLeast(version string, oldest ...int) bool {
	parts := strings.Split(version, ".")
	for i, want := range oldest {
		have := 0
		if i < len(parts) {
			have, _ = strconv.Atoi(parts[i]) // "0-rc" comes before 1, which is all that is asked of it
		}
		if have != want {
			return have > want
		}
	}
	return true
}
