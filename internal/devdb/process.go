package devdb

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is a started program. done is closed when it has ended and was waited for.
type process struct {
	pid  int
	done chan struct{}
	err  error // how it ended; read it after done
}

// startProcess starts and waits on one locked thread: the kernel's parent-death signal fires when
// the *thread* that forked ends, and Go ends threads as it likes.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, <-started
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// waitFor reports whether the process ended in time.
func (p *process) waitFor(d time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(d):
		return false
	}
}

// stop asks with a signal, then insists.
func (p *process) stop(sig syscall.Signal, patience time.Duration) error {
	signalProcess(p.pid, sig)
	if p.waitFor(patience) {
		return nil
	}
	return p.kill()
}

func (p *process) kill() error {
	if p.ended() {
		return nil
	}
	pids := killTree(p.pid)
	if !p.waitFor(10 * time.Second) {
		return fmt.Errorf("process %d did not end after kill -9", p.pid)
	}
	return waitGone(pids)
}

// waitGone waits for orphans, which are not ours to wait for otherwise.
func waitGone(pids []int) error {
	deadline := time.Now().Add(10 * time.Second)
	for _, pid := range pids {
		for alive(pid) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d did not end after kill -9", pid)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	return nil
}

// serverCommand has its output in the server's log, its folder as working folder, and an
// environment that does not depend on ours.
func serverCommand(dir *folder, log *os.File, path string, args []string, onParentDeath syscall.Signal) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir.join(dataName)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{
		"PATH=" + filepath.Dir(path) + ":" + os.Getenv("PATH") + ":/usr/bin:/bin:/usr/sbin:/sbin",
		"HOME=" + dir.join(dataName), "TMPDIR=" + dir.join(dataName), "LC_ALL=C", "TZ=UTC",
	}
	asServer(cmd, onParentDeath)
	return cmd
}

// logTail is the end of the server's log, for errors.
func logTail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
