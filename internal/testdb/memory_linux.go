package testdb

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	envTemp = "TMPDIR"

	memory     = "/dev/shm"
	memoryFree = 6 << 30 // for the servers of several packages
)

// useMemory puts the servers' folders into memory if there is space and the environment names no
// other place. On a disk the kernel spends much of a test's processor time on files that are made
// and removed. What is in memory survives kill -9 of a server as well.
func useMemory() error {
	var fs unix.Statfs_t
	if os.Getenv(envTemp) != "" || unix.Access(memory, unix.W_OK) != nil || unix.Statfs(memory, &fs) != nil {
		return nil
	}
	if min(int64(fs.Bavail)*int64(fs.Bsize), availableMemory()) < memoryFree {
		return nil
	}
	return os.Setenv(envTemp, memory)
}

// availableMemory is what the kernel could give to programs; 0 if it does not say.
func availableMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\nMemAvailable:")
	var kB int64
	_, _ = fmt.Sscan(rest, &kB)
	return kB << 10
}
