//go:build unix && !solaris && !aix

package devdb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// unprivileged is the user `nobody`, which runs the servers that root starts. It has a line in
// /etc/passwd everywhere, which Postgres insists on.
const unprivileged = 65534

var errLocked = errors.New("locked by another process")

// holdLock locks the file and makes sure that it is still the one at that path: a sweep may have
// removed it in between.
func holdLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, err
	}
	mine, err1 := f.Stat()
	there, err2 := os.Stat(path)
	if err := errors.Join(err1, err2); err != nil {
		f.Close()
		return nil, err
	}
	if !os.SameFile(mine, there) {
		f.Close()
		return nil, errLocked
	}
	return f, nil
}

func ownedByUs(st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// giveToServer makes a folder belong to the user that the server will run as.
func giveToServer(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(path, unprivileged, unprivileged)
}

// asServer makes the command run as an ordinary user, in a process group of its own so that
// Ctrl-C in the terminal reaches only us.
func asServer(cmd *exec.Cmd, onParentDeath syscall.Signal) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: unprivileged, Gid: unprivileged}
	}
	dieWithParent(cmd.SysProcAttr, onParentDeath)
}

func signalProcess(pid int, sig syscall.Signal) { _ = syscall.Kill(pid, sig) }

func signalGroup(pid int, sig syscall.Signal) { _ = syscall.Kill(-pid, sig) }

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return (err == nil || errors.Is(err, syscall.EPERM)) && !isZombie(pid)
}

// killOrphan ends a server whose parent died where the kernel does not do it. The command line
// must name the folder: the number may belong to another process by now.
func killOrphan(path string) {
	text, err := os.ReadFile(filepath.Join(path, pidName))
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 || !alive(pid) {
		return
	}
	out, err := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err == nil && bytes.Contains(out, []byte(path)) {
		killTree(pid)
	}
}

// killTree kills a process and its children, and names them all. Postgres puts each backend into a
// group of its own, so the group is not enough. The parent is stopped first, or it could start
// another child between the look and the kill.
func killTree(pid int) []int {
	_ = stopProcess(pid) // one that does not stop is killed all the same
	pids := append(children(pid), pid)
	for _, p := range pids {
		signalProcess(p, syscall.SIGKILL)
	}
	signalGroup(pid, syscall.SIGKILL)
	return pids
}

// freezeTree stops a process and its children where they are. The parent goes first, as in
// killTree.
func freezeTree(pid int) error {
	err := stopProcess(pid)
	pids := children(pid)
	for _, p := range pids {
		signalProcess(p, syscall.SIGSTOP)
	}
	for _, p := range pids {
		err = errors.Join(err, awaitStopped(p))
	}
	return err
}

func stopProcess(pid int) error {
	signalProcess(pid, syscall.SIGSTOP)
	return awaitStopped(pid)
}

// awaitStopped: the signal is only on its way when kill returns. A thread stops when it is next
// given a processor, and until then the other threads go on: 0.2 second on a busy machine.
func awaitStopped(pid int) error {
	deadline := time.Now().Add(10 * time.Second)
	for !stopped(pid) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d did not stop", pid)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// thawTree lets a frozen process and its children go on.
func thawTree(pid int) {
	signalProcess(pid, syscall.SIGCONT)
	for _, p := range children(pid) {
		signalProcess(p, syscall.SIGCONT)
	}
}
