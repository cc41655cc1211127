//go:build unix

package suite

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Suspend stops a process where it is.
func Suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Resume lets a suspended process go on.
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// Uptime is a clock that the processes of a machine share, and that no user sets.
func Uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Unix has it
	}
	return time.Duration(now.Nano())
}
