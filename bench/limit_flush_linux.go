package bench

import (
	"errors"
	"os"
	"syscall"
)

// fdatasync is what Postgres and InnoDB call on Linux.
func fdatasync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
