//go:build unix

package conformance

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// suspend stops a process where it is.
func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// resume lets a suspended process go on.
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// uptime is a clock that the processes of a machine share, and that no user sets.
func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Unix has it
	}
	return time.Duration(now.Nano())
}
