package testdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	envNetwork = "DBLOCK_TEST_NETWORK"
	envApart   = "DBLOCK_TEST_APART" // set in a process that has a network of its own

	apartTimeout = 5 * time.Minute

	nearAddr, farAddr = "198.51.100.1", "198.51.100.2" // of the block that is meant for examples

	nobodysMAC = "02:00:00:00:00:ff"
)

// Networks reports whether tests can have networks of their own here, to cut them. That takes
// iproute2, util-linux and the right to make network namespaces: root's, or any user's where the
// system allows user namespaces. Where it is missing a line says so, and such tests are not
// selected. DBLOCK_TEST_NETWORK=0 does without them, and 1 asks for them: then it panics if they
// are missing.
var Networks = sync.OnceValue(func() bool {
	if v := os.Getenv(envNetwork); v == "0" {
		logf("networks that are cut are not under test: %s=0", envNetwork)
		return false
	} else if v != "" && v != "1" {
		panic(fmt.Errorf("testdb: %s: %q is neither 0 nor 1", envNetwork, v))
	}
	err := tryNetwork()
	if err == nil {
		return true
	}
	if os.Getenv(envNetwork) == "1" {
		panic(fmt.Errorf("testdb: %s=1 asks for networks: %w", envNetwork, err))
	}
	logf("networks that are cut are not under test: %v", err)
	return false
})

// tryNetwork makes one, and another one beside it.
func tryNetwork() error {
	for _, tool := range []string{"nsenter", "unshare", "ip"} {
		if _, err := exec.LookPath(toolPath(tool)); err != nil {
			return fmt.Errorf("%s is not installed (iproute2, util-linux)", tool)
		}
	}
	if os.Getenv(envApart) != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), apartTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, toolPath("unshare"), "--net", toolPath("ip"), "link", "add", "near", "type", "veth", "peer", "name", "far")
	cmd.SysProcAttr = apart()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("no network namespace can be made: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// toolPath: an ordinary user's PATH often lacks the folder.
func toolPath(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	return "/usr/sbin/" + name
}

// apart starts a process in a network of its own. Without root it uses a user namespace as well:
// the process keeps its user, and has rights over that network alone.
func apart() *syscall.SysProcAttr {
	if os.Geteuid() == 0 {
		return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	}
	uid, gid := os.Geteuid(), os.Getegid()
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNET | unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN},
	}
}

// Apart runs the test that calls it once more, alone, in a process that has a network of its own,
// and is true there. Here it is false, and the test fails if that one does. It needs Networks, and
// servers that are started, not given.
func Apart(t *testing.T, kind devdb.Kind) bool {
	t.Helper()
	if os.Getenv(envApart) != "" {
		ip(t, "link", "set", "lo", "up")
		return true
	}
	if Server(t, kind).PID() == 0 {
		t.Logf("no %s server whose network is ours: it is given by %s", kind, Server(t, kind).Source)
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), apartTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.v", "-test.count=1", "-test.run="+onlyTest(t.Name()))
	cmd.Env = append(os.Environ(), envApart+"=1", envEngines+"="+string(kind), "DBLOCK_POSTGRES_URL=", "DBLOCK_MYSQL_DSN=")
	cmd.SysProcAttr = apart()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("in a network of its own: %v\n%s", err, out)
		return false
	}
	t.Logf("in a network of its own:\n%s", out)
	return false
}

// onlyTest matches a test, and the tests that it is part of.
func onlyTest(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// ip configures the network of this process.
func ip(tb testing.TB, args ...string) {
	tb.Helper()
	if out, err := exec.Command(toolPath("ip"), args...).CombinedOutput(); err != nil {
		tb.Fatalf("testdb: ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Far is a machine, as far as its network goes, at the other end of a wire. It lives as long as the
// test.
type Far struct {
	network string // the file that stands for it
}

// NewFar makes it, and the wire, in a process that is Apart.
func NewFar(tb testing.TB) *Far {
	tb.Helper()
	keeper := exec.Command("cat") // a network lives as long as a process has it, and this one until its input ends
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	in, err := keeper.StdinPipe()
	if err := errors.Join(err, keeper.Start()); err != nil {
		tb.Fatalf("testdb: %v", err)
	}
	tb.Cleanup(func() { endKeeper(tb, keeper, in) })
	f := &Far{network: fmt.Sprintf("/proc/%d/ns/net", keeper.Process.Pid)}
	ip(tb, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", fmt.Sprint(keeper.Process.Pid))
	tb.Cleanup(func() { ip(tb, "link", "del", "near") }) // the kernel would, some time after the network's end: the next one has the same names
	ip(tb, "addr", "add", nearAddr+"/24", "dev", "near")
	ip(tb, "link", "set", "near", "up")
	f.ip(tb, "addr", "add", farAddr+"/24", "dev", "far")
	f.ip(tb, "link", "set", "far", "up")
	return f
}

func endKeeper(tb testing.TB, keeper *exec.Cmd, in io.Closer) {
	if err := errors.Join(in.Close(), keeper.Wait()); err != nil {
		tb.Errorf("testdb: %v", err)
	}
}

func (f *Far) ip(tb testing.TB, args ...string) {
	tb.Helper()
	if out, err := f.Command(tb.Context(), toolPath("ip"), args...).CombinedOutput(); err != nil {
		tb.Fatalf("testdb: ip %s at the far end: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Command runs a program there: ctx ends it.
func (f *Far) Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, toolPath("nsenter"), append([]string{"--net=" + f.network, path}, args...)...)
}

// Cut lets nothing come through from now on, either way, and neither side gets an error: both links
// stay up, as they do if a switch between them fails. What is sent goes to an unused address of the
// wire.
func (f *Far) Cut(tb testing.TB) {
	tb.Helper()
	ip(tb, "neigh", "replace", farAddr, "lladdr", nobodysMAC, "dev", "near", "nud", "permanent")
	f.ip(tb, "neigh", "replace", nearAddr, "lladdr", nobodysMAC, "dev", "far", "nud", "permanent")
}

// Mend has everything come through again.
func (f *Far) Mend(tb testing.TB) {
	tb.Helper()
	ip(tb, "neigh", "del", farAddr, "dev", "near")
	f.ip(tb, "neigh", "del", nearAddr, "dev", "far")
}
