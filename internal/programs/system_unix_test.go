//go:build unix

package programs

import (
	"syscall"
	"time"
)

// quit has a process that hangs write down what its goroutines do, and ends it.
func quit(p *process) {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
	}
}
