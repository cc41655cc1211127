package devdb

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel signal the server when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

func statFields(pid int) []string { return readStat(fmt.Sprintf("/proc/%d/stat", pid)) }

// readStat gives the fields of /proc/PID/stat from the state on: state, parent, group, …
func readStat(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name may hold spaces
}

func isZombie(pid int) bool {
	f := statFields(pid)
	return len(f) > 0 && f[0] == "Z"
}

// stopped is true of a process that has ended as well.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid)) // as in children
	for _, thread := range threads {
		if f := readStat(thread); len(f) > 0 && !strings.Contains("TtZX", f[0]) {
			return false
		}
	}
	return true
}

func children(parent int) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // fails only on a malformed pattern
	var pids []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if f := statFields(pid); len(f) > 1 && f[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// removeSegment drops the small System V segment that a killed Postgres leaves in the kernel.
func removeSegment(id int) { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }
