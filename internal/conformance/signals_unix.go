//go:build unix

package conformance

import (
	"os"
	"syscall"
)

// suspend stops a process where it is.
func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// resume lets a suspended process go on.
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
