package devdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	folderPrefix = "dblock-dev-"
	lockName     = "lock"
	pidName      = "pid"
)

// folder is a server's place on the disk. Its maker holds a file lock in it while alive, so a
// folder whose lock is free is garbage, whatever became of the maker.
type folder struct {
	path string
	lock *os.File
}

func makeFolder() (*folder, error) {
	base := tempBase()
	for range 10 {
		path, err := os.MkdirTemp(base, folderPrefix)
		if err != nil {
			return nil, err
		}
		if err := os.Chmod(path, 0o711); err != nil { // the server's user must pass through
			return nil, err
		}
		f, err := holdLock(filepath.Join(path, lockName))
		if err == nil {
			return &folder{path, f}, nil
		}
		if !errors.Is(err, errLocked) && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		// Another process's sweep came between making the folder and locking it: take a new one.
	}
	return nil, fmt.Errorf("can't make a folder below %s", base)
}

func (f *folder) join(name string) string { return filepath.Join(f.path, name) }

func (f *folder) remove() error {
	err := os.RemoveAll(f.path)
	f.lock.Close()
	return err
}

// tempBase is the temporary folder, or /tmp when the user that root starts servers as can't reach
// the former.
func tempBase() string {
	base := os.TempDir()
	if os.Geteuid() != 0 {
		return base
	}
	for dir := base; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm()&0o001 == 0 {
			return "/tmp"
		}
	}
	return base
}

// sweep removes what dead processes of this user left behind. Failures are left to the next sweep.
func sweep() {
	paths, err := filepath.Glob(filepath.Join(tempBase(), folderPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		sweepOne(path)
	}
}

func sweepOne(path string) {
	st, err := os.Lstat(path)
	if err != nil || !st.IsDir() || !ownedByUs(st) {
		return
	}
	lock := filepath.Join(path, lockName)
	if _, err := os.Stat(lock); err != nil {
		// Its maker may be about to lock it; a minute later it is certainly not.
		if time.Since(st.ModTime()) > time.Minute {
			os.RemoveAll(path)
		}
		return
	}
	f, err := holdLock(lock)
	if err != nil {
		return
	}
	defer f.Close()
	killOrphan(path)
	os.RemoveAll(path)
}
