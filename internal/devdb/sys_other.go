//go:build unix && !linux && !solaris && !aix

package devdb

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent does nothing: these kernels have no such signal, so the next Start's sweep ends
// the server instead.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

func isZombie(pid int) bool {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

func children(parent int) []int {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(parent)).Output()
	if err != nil {
		return nil
	}
	var pids []int
	for _, line := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(line); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// removeSegment does nothing: the kernel drops the segment at the next boot.
func removeSegment(int) {}
