package programs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// sections are critical sections that the operating system guards. To enter one is to lock its
// files without waiting. If that fails another holder is inside. A file has the process of its last
// holder.
type sections struct {
	dir     string
	process int
}

var errOverlap = errors.New("another holder is in the section")

// section is one that was entered.
type section []*os.File

func (s section) leave() {
	for _, f := range s {
		_ = f.Close()
	}
}

// enter enters the sections of all names, or of as many of a semaphore's permits as are asked for.
func (j sections) enter(names []string, shared bool, permits, limit int) (section, error) {
	if permits > 0 {
		return j.enterPermits(names[0], permits, limit)
	}
	var s section
	for _, name := range names {
		if err := j.lock(&s, name, shared); err != nil {
			s.leave()
			return nil, &enterError{name, j.holders(name), err}
		}
	}
	return s, nil
}

// enterError names the section that could not be entered, and the processes that were in it.
type enterError struct {
	name string
	by   []int
	err  error
}

func (e *enterError) Error() string { return e.name + ": " + e.err.Error() }
func (e *enterError) Unwrap() error { return e.err }

func (j sections) lock(s *section, name string, shared bool) error {
	f, err := os.OpenFile(filepath.Join(j.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	locked, err := suite.Flock(f, shared, false)
	if err != nil || !locked {
		return errors.Join(err, f.Close(), errOverlap)
	}
	*s = append(*s, f)
	_, err = f.WriteAt([]byte{byte(j.process)}, 0)
	return err
}

// holders are the processes that were the last ones in some files.
func (j sections) holders(files ...string) (processes []int) {
	for _, name := range files {
		if b, err := os.ReadFile(filepath.Join(j.dir, name)); err == nil && len(b) > 0 {
			processes = append(processes, int(b[0]))
		}
	}
	return processes
}

// enterPermits locks as many of a semaphore's files as there are permits. One process at a time
// looks for them, so that a file that is free stays free meanwhile.
func (j sections) enterPermits(name string, permits, limit int) (section, error) {
	turn, err := os.OpenFile(filepath.Join(j.dir, name+".turn"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = turn.Close() }()
	if _, err := suite.Flock(turn, false, true); err != nil {
		return nil, err
	}
	var s section
	var files []string
	for n := 0; n < limit && len(s) < permits; n++ {
		files = append(files, fmt.Sprint(name, ".", n))
		if err := j.lock(&s, files[n], false); err != nil && !errors.Is(err, errOverlap) {
			s.leave()
			return nil, err
		}
	}
	if len(s) < permits {
		s.leave()
		return nil, &enterError{name, j.holders(files...), errOverlap}
	}
	return s, nil
}
