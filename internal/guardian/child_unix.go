//go:build unix && !solaris && !aix

package guardian

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// marker is the first argument of a guardian.
	marker = "guard-a-command"
	// name is what a list of processes shows. It does not match dblock, so killing that by name
	// spares the guardian.
	name = "lock-guardian"
	// begin is the last line that the caller writes before it starts the guardian.
	begin = "begin"
	// notice is how long processes that the command left behind may run on before the caller is
	// notified.
	notice = 2 * time.Second
)

// Main is the guardian's main function. In other processes it returns at once.
func Main() {
	if len(os.Args) > 1 && os.Args[1] == marker {
		os.Exit(guard(os.Args[2:]))
	}
}

// guarded is what a guardian knows.
type guarded struct {
	reports *os.File
	pid     int
	group   int  // the command's own process group; 0: it is in the caller's
	ended   bool // the command itself has
	adopts  bool // all that the command leaves behind become children of this process
	grace   time.Duration
	slack   time.Duration

	until [2]time.Time // by the monotonic and by the wall clock
	kill  time.Time    // after SIGTERM; zero before
	dead  bool         // the caller has gone
	left  time.Time    // when the caller is notified of what is left behind; zero: never
}

func guard(args []string) int {
	runtime.LockOSThread() // the command is to die with the thread that started it
	g, orders, join, argv, err := parse(args)
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "dblock: %s is no command of dblock's: %v\n", marker, err)
		return 2
	}
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if !signal.Ignored(sig) { // what the caller ignores the command ignores, too
			signal.Notify(signals, sig)
		}
	}
	g.adopts = adopt()
	lines := bufio.NewScanner(orders)
	if err := g.mayStart(lines); err != nil {
		g.report("failed " + err.Error())
		return 1
	}
	if err := g.start(argv, join); err != nil {
		g.report("failed " + strings.ReplaceAll(err.Error(), "\n", " "))
		return 1
	}
	g.report("started " + strconv.Itoa(g.pid))
	received, ended, over := make(chan string), make(chan syscall.WaitStatus, 1), make(chan struct{})
	go read(lines, received)
	go g.reap(ended, over)
	for {
		select {
		case line, ok := <-received:
			if ok {
				g.obey(line)
			} else {
				g.dead, received = true, nil
			}
		case <-signals:
			g.terminate()
		case status := <-ended:
			g.ended, g.left = true, time.Now().Add(notice)
			g.report("ended " + strconv.Itoa(int(status)))
		case <-over:
			if !g.ended {
				g.report("ended " + strconv.Itoa(int(<-ended)))
			}
			g.report("over")
			return 0
		case <-time.After(g.pause()):
		}
		g.act()
	}
}

// parse reads what start has written.
func parse(args []string) (g *guarded, orders *os.File, join int, argv []string, err error) {
	if len(args) < 7 {
		return nil, nil, 0, nil, errors.New("arguments are missing")
	}
	var n [3]int
	for i := range n {
		if n[i], err = strconv.Atoi(args[i]); err != nil {
			return nil, nil, 0, nil, err
		}
	}
	g = &guarded{}
	if g.grace, err = time.ParseDuration(args[3]); err != nil {
		return nil, nil, 0, nil, err
	}
	if g.slack, err = time.ParseDuration(args[4]); err != nil {
		return nil, nil, 0, nil, err
	}
	syscall.CloseOnExec(n[0])
	syscall.CloseOnExec(n[1])
	g.reports = os.NewFile(uintptr(n[1]), "reports")
	return g, os.NewFile(uintptr(n[0]), "orders"), n[2], args[5:], nil
}

// start starts the command in a process group, or in its own if join is 0. argv has its path, then
// its arguments.
func (g *guarded) start(argv []string, join int) error {
	attr := &syscall.SysProcAttr{Setpgid: true, Pgid: join}
	dieWithParent(attr)
	p, err := os.StartProcess(argv[0], argv[1:], &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr})
	if err != nil {
		return err
	}
	g.pid = p.Pid
	if join == 0 {
		g.group = g.pid
	}
	return p.Release() // reap waits for it
}

// mayStart takes in what the caller wrote before it started this process. The command is not
// started if its time has passed.
func (g *guarded) mayStart(lines *bufio.Scanner) error {
	for lines.Scan() {
		if lines.Text() == begin {
			if g.passed(0) {
				return errors.New("the command was not started: its time was over")
			}
			return nil
		}
		g.obey(lines.Text())
	}
	return errors.New("the command was not started: the caller has ended")
}

func read(lines *bufio.Scanner, received chan<- string) {
	defer close(received)
	for lines.Scan() {
		received <- lines.Text()
	}
}

// reap waits for all children. If this process adopts, they are all that the command has left.
func (g *guarded) reap(ended chan<- syscall.WaitStatus, over chan<- struct{}) {
	first := true
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // there is none
			for !g.adopts && g.group != 0 && syscall.Kill(-g.group, 0) == nil {
				time.Sleep(10 * time.Millisecond)
			}
			close(over)
			return
		case pid == g.pid && first: // its number may be another's later
			first = false
			ended <- status
		}
	}
}

// obey does what the caller says: "until WALL REMAINING", in nanoseconds, or "end". See begin for
// the other line.
func (g *guarded) obey(line string) {
	fields := numbers64(line)
	switch {
	case strings.HasPrefix(line, "until ") && len(fields) == 2:
		g.until = [2]time.Time{time.Now().Add(time.Duration(fields[1])), time.Unix(0, fields[0])}
	case line == "end":
		g.terminate()
	}
}

func numbers64(line string) (ns []int64) {
	for _, field := range strings.Fields(line) {
		if n, err := strconv.ParseInt(field, 10, 64); err == nil {
			ns = append(ns, n)
		}
	}
	return ns
}

// terminate sends SIGTERM to all, once.
func (g *guarded) terminate() {
	if !g.kill.IsZero() {
		return
	}
	g.kill = time.Now().Add(g.grace)
	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGCONT)
}

// passed reports whether the command's time ended at least d ago.
func (g *guarded) passed(d time.Duration) bool {
	now := time.Now()
	return !g.until[0].IsZero() && (now.After(g.until[0].Add(d)) || now.After(g.until[1].Add(d)))
}

// act does what the time asks for.
func (g *guarded) act() {
	now := time.Now()
	if g.passed(0) {
		g.terminate()
	}
	if g.dead || g.passed(g.slack) || !g.kill.IsZero() && !now.Before(g.kill) {
		g.kill, g.dead = now, true
		g.signal(syscall.SIGKILL)
	}
	if !g.left.IsZero() && now.After(g.left) {
		g.left = time.Time{}
		g.report(reportLeft(g.family()))
	}
}

// pause is how long nothing has to be done. Clocks can jump, so it is short.
func (g *guarded) pause() time.Duration {
	if g.dead {
		return 5 * time.Millisecond
	}
	next := 100 * time.Millisecond
	for _, t := range []time.Time{g.kill, g.until[0], g.until[1], g.until[0].Add(g.slack), g.until[1].Add(g.slack)} {
		if left := time.Until(t); left > 0 {
			next = min(next, left)
		}
	}
	return next
}

// signal sends a signal to all processes of the command.
func (g *guarded) signal(sig syscall.Signal) {
	pids := g.family()
	switch {
	case len(pids) == 0 && g.group != 0:
		pids = []int{-g.group}
	case len(pids) == 0 && !g.ended:
		pids = []int{g.pid}
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig) // it may have ended
	}
}

// maxNamed is how many processes a report names. A report is a line, which its reader bounds.
const maxNamed = 100

// reportLeft says how many processes are left, and the numbers of the first ones.
func reportLeft(pids []int) string {
	return fmt.Sprintf("left %d %s", len(pids), strings.Trim(fmt.Sprint(pids[:min(len(pids), maxNamed)]), "[]"))
}

func (g *guarded) report(line string) { _, _ = g.reports.WriteString(line + "\n") }
