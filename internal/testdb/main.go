package testdb

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Main runs a package's tests, closes the servers that they used, fails when a goroutine was left
// behind, and exits. With kinds, it runs nothing (and passes) when none of these is under test.
func Main(m *testing.M, kinds ...devdb.Kind) {
	engines, err := selected()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := useMemory(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := useTemplates(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "testdb: engines under test:", join(engines))
	if len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k devdb.Kind) bool { return slices.Contains(engines, k) }) {
		fmt.Fprintln(os.Stderr, "testdb: this package is about", join(kinds)+": nothing to run")
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := m.Run()
	if err := closeServers(); err != nil {
		fmt.Fprintln(os.Stderr, "testdb: close the servers:", err)
		code = max(code, 1)
	}
	if code != 0 {
		return code // a failed test leaves goroutines; its own message is the one to read
	}
	if err := goleak.Find(leakOptions()...); err != nil {
		fmt.Fprintln(os.Stderr, "testdb: goroutines left behind:", err)
		return 1
	}
	return 0
}

// leakOptions passes over the idle connections to the Docker daemon, which its client keeps.
func leakOptions() []goleak.Option {
	if !usedDocker() {
		return nil
	}
	return []goleak.Option{
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"),
	}
}

func join(kinds []devdb.Kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}
