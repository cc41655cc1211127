//go:build unix

package programs

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// flock locks the open file f, shared or exclusively, and returns whether it did. With wait it
// waits for other holders.
func flock(f *os.File, shared, wait bool) (bool, error) {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return err == nil, err
		}
	}
}

// quit has a process that hangs write down what its goroutines do, and ends it.
func quit(p *process) {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
	}
}
