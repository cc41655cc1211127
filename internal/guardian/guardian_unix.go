//go:build unix && !solaris && !aix

package guardian

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// checkInterval is how often the caller asks ValidUntil.
const checkInterval = 100 * time.Millisecond

// sharing counts the commands of this process that are in its process group.
var sharing atomic.Int64

// CommandHas reports whether a running command has got the signal too: Ctrl-C and Ctrl-\ go to the
// whole process group that has the terminal.
func CommandHas(sig os.Signal) bool {
	return sharing.Load() > 0 && (sig == syscall.SIGINT || sig == syscall.SIGQUIT) && inForeground()
}

// inForeground reports whether this process's group has its terminal.
func inForeground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer func() { _ = tty.Close() }()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP) // a descriptor is a small number
	return err == nil && group == syscall.Getpgrp()
}

func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	return tty.Close() == nil
}

// Run runs a command and returns when all its processes have ended, with its exit status, or 128
// and the number of the signal that ended it. If ctx ends first, all get SIGTERM, and SIGKILL after
// Grace.
func Run(ctx context.Context, c Command) (status int, err error) {
	path, err := exec.LookPath(c.Args[0])
	if err != nil {
		return 0, err
	}
	r := &run{Command: c, orders: make(chan string, 1), shares: hasTerminal()}
	if err := r.start(path); err != nil {
		return 0, fmt.Errorf("the guardian of the command was not started: %w", err)
	}
	defer r.close()
	if r.shares {
		sharing.Add(1)
		defer r.unshare()
	}
	return r.wait(ctx)
}

// run is one call of Run.
type run struct {
	Command
	shares bool // the command is in this process's group
	cmd    *exec.Cmd
	to     *os.File // to the guardian
	from   *os.File
	orders chan string
	until  time.Time // as the guardian knows it

	pid    int // of the command
	status syscall.WaitStatus
	ended  bool // the command itself has
	over   bool // all processes have
	failed string
}

// start starts the guardian. Its pipes have numbers that were free, as a command may inherit open
// files with others.
func (r *run) start(path string) error {
	ordersIn, ordersOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = ordersIn.Close() }()
	reportsIn, reportsOut, err := os.Pipe()
	if err != nil {
		_ = ordersOut.Close()
		return err
	}
	defer func() { _ = reportsOut.Close() }()
	r.to, r.from = ordersOut, reportsIn
	group := 0
	if r.shares {
		group = syscall.Getpgrp()
	}
	r.cmd = exec.Command(self(), marker, inherit(ordersIn), inherit(reportsOut), strconv.Itoa(group), r.Grace.String(), r.Slack.String(), path)
	r.cmd.Args = append(r.cmd.Args, r.Args...)
	r.cmd.Args[0] = name
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr, r.cmd.Env = r.Stdin, r.Stdout, r.Stderr, r.Env
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what is sent to the caller's group does not reach it
	r.cmd.WaitDelay = time.Second                           // for a reader of Stdin that never ends
	r.extend()
	r.order(begin)
	if err := r.cmd.Start(); err != nil {
		r.close()
		return err
	}
	return nil
}

// inherit has the next processes that are started get the file, and returns its number there.
func inherit(f *os.File) string {
	fd := f.Fd()
	_, _ = unix.FcntlInt(fd, unix.F_SETFD, 0) // fails only for files that are not open
	return strconv.Itoa(int(fd))
}

func (r *run) close() { _, _ = r.to.Close(), r.from.Close() }

func (r *run) unshare() {
	if r.shares {
		r.shares = false
		sharing.Add(-1)
	}
}

// wait sends the guardian what it has to know, until all processes have ended.
func (r *run) wait(ctx context.Context) (int, error) {
	reports := make(chan string)
	go func() {
		defer close(reports)
		for lines := bufio.NewScanner(r.from); lines.Scan(); {
			reports <- lines.Text()
		}
	}()
	gone := make(chan struct{})
	go func() {
		_ = r.cmd.Wait() // what it has to say is in its reports
		close(gone)
	}()
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGPIPE) // a lost Stderr must not end this process
	if !signal.Ignored(syscall.SIGQUIT) {
		signal.Notify(quit, syscall.SIGQUIT)
	}
	defer signal.Stop(quit)
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	done := ctx.Done()
	for reports != nil && !r.over {
		select {
		case <-done:
			done = nil
			r.order("end")
		case sig := <-quit:
			if sig == syscall.SIGQUIT && !CommandHas(sig) {
				r.order("end")
			}
		case <-tick.C:
			r.extend()
		case line, ok := <-reports:
			if !ok {
				reports = nil
				break
			}
			r.report(line)
		case <-gone: // other programs that are started at the same moment may keep the pipe open
			gone = nil
			_ = r.from.SetReadDeadline(time.Now().Add(2 * time.Second))
		}
	}
	if gone != nil {
		<-gone // Stdout and Stderr are complete
	}
	return r.result()
}

// extend sends the guardian the time until which the command may run.
func (r *run) extend() {
	if until := r.ValidUntil(); !until.Equal(r.until) {
		r.until = until
		r.order(fmt.Sprintf("until %d %d", until.UnixNano(), time.Until(until)))
	}
}

// order sends a line. A guardian that was stopped goes on; one that is gone is noticed by wait.
func (r *run) order(line string) {
	if r.cmd.Process != nil {
		_ = r.cmd.Process.Signal(syscall.SIGCONT)
	}
	_ = r.to.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = r.to.WriteString(line + "\n")
}

// report takes a report in.
func (r *run) report(line string) {
	word, rest, _ := strings.Cut(line, " ")
	n, _ := strconv.Atoi(strings.Fields(rest + " 0")[0])
	switch word {
	case "started":
		r.pid = n
	case "failed":
		r.failed = rest
	case "ended": // Ctrl-C is no longer the command's
		r.ended, r.status = true, syscall.WaitStatus(n)
		r.unshare()
	case "left":
		if r.Left != nil {
			_, pids, _ := strings.Cut(rest, " ")
			r.Left(n, numbers(pids))
		}
	case "over":
		r.over = true
	}
}

func numbers(list string) (ns []int) {
	for _, field := range strings.Fields(list) {
		if n, err := strconv.Atoi(field); err == nil {
			ns = append(ns, n)
		}
	}
	return ns
}

// result is called when the guardian has gone.
func (r *run) result() (int, error) {
	switch {
	case r.failed != "":
		return 0, errors.New(r.failed)
	case !r.over:
		if r.pid != 0 && !r.shares {
			killGroup(r.pid)
		}
		return 0, fmt.Errorf("the guardian of the command (%s, process %d) was killed: processes of the command may still run", name, r.cmd.Process.Pid)
	case r.status.Signaled():
		return 128 + int(r.status.Signal()), nil
	}
	return r.status.ExitStatus(), nil
}

// killTime bounds killGroup: a process that has ended stays in its group until its parent reaps it.
const killTime = 2 * time.Second

// killGroup kills a process group until it is empty.
func killGroup(group int) {
	for end := time.Now().Add(killTime); time.Now().Before(end) && syscall.Kill(-group, syscall.SIGKILL) == nil; {
		time.Sleep(10 * time.Millisecond)
	}
}
