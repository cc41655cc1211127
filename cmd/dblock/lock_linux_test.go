package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/guardian"
)

// envUnguarded makes dblock lock start its command as it did before there were guardians.
const envUnguarded = "DBLOCK_TEST_UNGUARDED"

func init() {
	if os.Getenv(envUnguarded) != "" {
		runCommand = unguarded
	}
}

func unguarded(ctx context.Context, c guardian.Command) (int, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = c.Stdin, c.Stdout, c.Stderr, c.Env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = c.Grace
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return 1, nil
	}
	return 0, err
}

// lockHolder has a grandchild of dblock lock hold a flock(2) until it is ended. It ignores SIGTERM.
const lockHolder = `sh -c 'trap "" TERM HUP; exec 9>>"$0"; flock -n 9 || { echo two at once; exit 1; }; echo holds; exec sleep 100' "$0" & wait`

// lockTaker ends with 1 if the flock is still held.
const lockTaker = `exec 9>>"$0"; flock -n 9 || { echo two at once; exit 1; }; echo took`

// holding is dblock lock with a grandchild that holds a flock.
type holding struct {
	cmd  *exec.Cmd
	file string
	out  *bufferedLines
}

// bufferedLines collects what is written.
type bufferedLines struct {
	mu    sync.Mutex
	text  strings.Builder
	holds chan struct{}
	once  sync.Once
}

func (b *bufferedLines) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Write(p)
	if strings.Contains(b.text.String(), "holds\n") {
		b.once.Do(func() { close(b.holds) })
	}
	return len(p), nil
}

func (b *bufferedLines) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// inItsOwnSession has a process have no terminal, wherever the tests run.
func inItsOwnSession(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// hold starts a holder and waits until it holds. A machine that is busy may take too long to start
// the command. Then the holder is started again, with twice the TTL.
func hold(t *testing.T, dsn string, env []string, key string, ttl time.Duration, script string) *holding {
	t.Helper()
	h := &holding{file: filepath.Join(t.TempDir(), "flock"), out: &bufferedLines{holds: make(chan struct{})}}
	h.cmd = inItsOwnSession(process(context.Background(), dsn, "lock", "--ttl="+ttl.String(), "--grace=300ms", key, "--", "sh", "-c", script, h.file))
	h.cmd.Env = append(h.cmd.Env, env...)
	h.cmd.Stdout, h.cmd.Stderr, h.cmd.WaitDelay = h.out, h.out, time.Millisecond
	// Under nohup this process ignores SIGHUP, and so would the child. A signal that is caught has
	// its default in the child.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	err := h.cmd.Start()
	signal.Stop(hangups)
	if err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- h.cmd.Wait() }()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		h.endGrandchildren()
		<-exited
	})
	select {
	case <-h.out.holds:
	case err := <-exited:
		exited <- err
		if strings.Contains(h.out.String(), "its time was over") && ttl < time.Minute {
			return hold(t, dsn, env, key, 2*ttl, script)
		}
		t.Fatalf("nothing holds: %v, %s", err, h.out)
	case <-time.After(time.Minute):
		t.Fatalf("nothing holds: %s", h.out)
	}
	return h
}

// endGrandchildren ends what a control leaves behind.
func (h *holding) endGrandchildren() {
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/9") // the pattern is well-formed
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && target == h.file {
			var pid int
			if _, err := fmt.Sscanf(fd, "/proc/%d/", &pid); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

const (
	toTheGroup = "KILL to the group"
	outOfReach = "the server is out of reach"
)

// endings are the ways in which the holder's dblock comes to an end, or loses its lock.
var endings = map[string]func(t *testing.T, h *holding, proxy *proxy){
	"TERM":     func(_ *testing.T, h *holding, _ *proxy) { _ = h.cmd.Process.Signal(syscall.SIGTERM) },
	"HUP":      func(_ *testing.T, h *holding, _ *proxy) { _ = h.cmd.Process.Signal(syscall.SIGHUP) },
	"KILL":     func(_ *testing.T, h *holding, _ *proxy) { _ = h.cmd.Process.Kill() },
	toTheGroup: func(_ *testing.T, h *holding, _ *proxy) { _ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL) },
	"STOP": func(t *testing.T, h *holding, _ *proxy) {
		_ = h.cmd.Process.Signal(syscall.SIGSTOP)
		t.Cleanup(func() { _ = h.cmd.Process.Signal(syscall.SIGCONT) })
	},
	outOfReach: func(_ *testing.T, _ *holding, p *proxy) { p.cut() },
}

// ttlOf is longer if the guardian ends the command by its own clock: a tenth of it must be long
// enough for a busy machine.
func ttlOf(ending string) time.Duration {
	if ending == "STOP" || ending == outOfReach {
		return 8 * time.Second
	}
	return 2 * time.Second
}

// TestLockFaults: the lock is free for another process once no process of the command runs any
// more, however dblock ends. What runs is seen by a flock(2) that a grandchild holds, which ignores
// SIGTERM.
func TestLockFaults(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		for name := range endings {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if said := endedBeside(t, strings.TrimPrefix(database, "--database="), name, nil); said != "took\n" {
					t.Errorf("the second command said %q", said)
				}
			})
		}
	})
}

// TestFaultsControlUnguarded: without the guardian two commands run at once, so the test above sees
// that. A signal to the whole group ends all of them there, too.
func TestFaultsControlUnguarded(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		for name := range endings {
			if name == toTheGroup {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if said := endedBeside(t, strings.TrimPrefix(database, "--database="), name, []string{envUnguarded + "=1"}); said != "two at once\n" {
					t.Errorf("the second command said %q", said)
				}
			})
		}
	})
}

// endedBeside ends a holder while another process waits for the lock, and returns what that one's
// command found.
func endedBeside(t *testing.T, dsn, ending string, env []string) string {
	t.Helper()
	proxy := newProxy(t, dsn)
	h := hold(t, proxy.dsn, env, ending, ttlOf(ending), lockHolder)
	next := inItsOwnSession(process(t.Context(), dsn, "lock", "--ttl=30s", ending, "--", "sh", "-c", lockTaker, h.file))
	var said strings.Builder
	next.Stdout = &said
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	endings[ending](t, h, proxy)
	_ = next.Wait()
	return said.String()
}

// proxy is a server's address that can be cut off without a word.
type proxy struct {
	dsn     string
	silence chan struct{}
	cut     func()
	answers atomic.Int64 // bytes from the server
}

// hostPort finds the address in a DSN of either engine.
var hostPort = regexp.MustCompile(`[@(]([\w.-]+:\d+)`)

func newProxy(t *testing.T, dsn string) *proxy {
	t.Helper()
	address := hostPort.FindStringSubmatch(dsn)[1]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := &proxy{dsn: strings.Replace(dsn, address, l.Addr().String(), 1), silence: make(chan struct{})}
	p.cut = sync.OnceFunc(func() { close(p.silence) })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				_ = client.Close()
				continue
			}
			go p.pass(client, server, &p.answers)
			go p.pass(server, client, new(atomic.Int64))
		}
	}()
	return p
}

// pass copies until the proxy is cut; what comes after that is lost.
func (p *proxy) pass(to io.WriteCloser, from io.Reader, count *atomic.Int64) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		count.Add(int64(n))
		select {
		case <-p.silence:
			n = 0
		default:
		}
		if _, wrong := to.Write(buffer[:n]); err != nil || wrong != nil {
			return
		}
	}
}
