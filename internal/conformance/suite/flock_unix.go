//go:build unix

package suite

import (
	"errors"
	"os"
	"syscall"
)

// Flock locks the open file f, shared or exclusively, and returns whether it did. With wait it
// waits for other holders.
func Flock(f *os.File, shared, wait bool) (bool, error) {
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
