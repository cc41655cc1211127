package guardian

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// self is this program, also if its file was replaced or removed in the meantime.
func self() string { return "/proc/self/exe" }

func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// adopt makes this process the parent of each process below it whose own parent has ended. It gives
// this process its name, too.
func adopt() bool {
	if text, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0) // only shown
	}
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
}

// family returns all processes below this one; none if they cannot be known.
func (g *guarded) family() []int {
	if !g.adopts {
		return nil
	}
	children := map[int][]int{}
	names, err := readNames("/proc")
	if err != nil {
		return nil
	}
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			parent := parentOf(pid)
			children[parent] = append(children[parent], pid)
		}
	}
	all := children[os.Getpid()]
	for i := 0; i < len(all); i++ { // it grows
		all = append(all, children[all[i]]...)
	}
	return all
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}

// parentOf is 0 if the process has ended.
func parentOf(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name may hold spaces
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}
