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

func isZombie(pid int) bool { return strings.HasPrefix(state(pid), "Z") }

// stopped is true of a process that has ended as well.
func stopped(pid int) bool {
	s := state(pid)
	return s == "" || s[0] == 'T' || s[0] == 'Z'
}

// state is "" when there is no such process.
func state(pid int) string {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
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
