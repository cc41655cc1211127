//go:build unix

package faultmatrix

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// interrupt asks a server to shut down in good order.
func interrupt(pid int) error { return syscall.Kill(pid, syscall.SIGINT) }

// terminate is interrupt for servers that ignore SIGINT.
func terminate(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) }

// kill ends a process at once.
func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

// runs reports whether there is a process of that number.
func runs(pid int) bool { return syscall.Kill(pid, 0) == nil }

// uptime is a clock that the processes of a machine share, and that no user sets.
func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Unix has it
	}
	return time.Duration(now.Nano())
}
